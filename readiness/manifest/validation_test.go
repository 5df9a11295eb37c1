package manifest

import (
	"testing"

	"github.com/rollcall-dev/rollcall/readiness/manifest/manifesttest"
)

// What the API's validation refuses is refused with its reason, and nothing that it accepts.
func TestValidation(t *testing.T) {
	manifesttest.Validation(t, func(_ *testing.T, data []byte) error {
		_, err := Decode(data, "n1")
		return err
	})
}

// A fixed metadata.uid is the hash, unless one would take it for one that is made of the content.
func TestHash(t *testing.T) {
	for uid, want := range map[string]string{
		"":                                      "",
		"fixed":                                 "fixed",
		"0123456789abcdef0123456789abcdef":      "",
		"0123456789abcdef0123456789abcde":       "0123456789abcdef0123456789abcde",
		"0123456789abcdef0123456789abcdef0":     "0123456789abcdef0123456789abcdef0",
		"0123456789ABCDEF0123456789ABCDEF":      "0123456789ABCDEF0123456789ABCDEF",
		"01234567-89ab-cdef-0123-456789abcdef":  "01234567-89ab-cdef-0123-456789abcdef",
		"0123456789abcdef0123456789abcdeg":      "0123456789abcdef0123456789abcdeg",
		"0123456789abcdef0123456789abcdef\n":    "0123456789abcdef0123456789abcdef\n",
		"\n0123456789abcdef0123456789abcdef\n ": "\n0123456789abcdef0123456789abcdef\n ",
	} {
		decoded, err := Decode(manifesttest.Manifest(t, map[string]any{"uid": uid}, nil), "n1")
		if err != nil {
			t.Fatal(err)
		}
		if string(decoded.UID) != uid {
			t.Errorf("uid %q became %q", uid, decoded.UID)
		}
		if got := describe(decoded).Hash; got != want {
			t.Errorf("uid %q: hash %q, want %q", uid, got, want)
		}
	}
}
