package oracle

import (
	"testing"

	"github.com/rollcall-dev/rollcall/readiness/manifest/manifesttest"
)

// The kubelet says of the cases of manifest's validation what they expect, and so does manifest.Decode.
func TestValidation(t *testing.T) {
	c := newComparison()
	manifesttest.Validation(t, func(t *testing.T, data []byte) error {
		c.check(t, data)
		_, err := Decode(data, node)
		return err
	})
	if c.accepted == 0 || c.refused == 0 || c.extra > 0 {
		t.Errorf("%d accepted, %d refused, %d taken for pods here only: %v", c.accepted, c.refused, c.extra, c.example)
	}
}
