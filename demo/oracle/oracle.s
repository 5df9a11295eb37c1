// This file lets oracle.go declare functions without a body.
