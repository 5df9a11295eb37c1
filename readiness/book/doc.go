// Package book holds one test and nothing else: what becomes of a static pod's mirror on a real kubelet, told step by step,
// and what rollcall says of it meanwhile (facts/static-pods.md section 1.6).
package book
