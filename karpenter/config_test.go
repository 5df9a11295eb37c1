package karpenter

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		taints string // as the flag prints them
		notice map[string]time.Duration
		err    string // a part of the message
	}{
		"none":                {},
		"repeated":            {args: []string{"--interruption-taint=a/b", "--interruption-taint", "c=d:NoExecute", "--interruption-taint=e=:NoSchedule"}, taints: "a/b,c=d:NoExecute,e=:NoSchedule"},
		"no key":              {args: []string{"--interruption-taint=:NoSchedule"}, err: "key[=value][:effect]"},
		"empty":               {args: []string{"--interruption-taint="}, err: "key[=value][:effect]"},
		"unknown effect":      {args: []string{"--interruption-taint=a:Never"}, err: `"Never" is no effect`},
		"soft effect":         {args: []string{"--interruption-taint=a:PreferNoSchedule"}, err: "never counts"},
		"effect without name": {args: []string{"--interruption-taint=a:"}, err: "key[=value][:effect]"},
		"bad key":             {args: []string{"--interruption-taint=a/b/c"}, err: `"a/b/c" is no taint key`},
		"bad value":           {args: []string{"--interruption-taint=a=b c"}, err: `"b c" is no taint value`},
		"two values":          {args: []string{"--interruption-taint=a=b=c"}, err: `"b=c" is no taint value`},
		"notice":              {args: []string{"--notice=spot-interruption=90s", "--notice=NodeDeleted=1m"}, notice: map[string]time.Duration{"spot-interruption": 90 * time.Second, NodeDeleted: time.Minute}},
		"notice of own taint": {args: []string{"--notice=a/b=1m", "--interruption-taint=a/b=c"}, taints: "a/b=c", notice: map[string]time.Duration{"a/b": time.Minute}},
		"notice of a typo":    {args: []string{"--notice=spot-intteruption=1m"}, err: `unknown cause "spot-intteruption"`},
		"notice, no duration": {args: []string{"--notice=spot-interruption"}, err: "cause=duration"},
		"notice, bad":         {args: []string{"--notice=spot-interruption=2"}, err: "cause=duration"},
		"notice, negative":    {args: []string{"--notice=spot-interruption=-1s"}, err: "cause=duration"},
	} {
		t.Run(name, func(t *testing.T) {
			config := DefaultConfig()
			fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
			fs.SetOutput(io.Discard)
			config.AddFlags(fs)
			err := fs.Parse(tc.args)
			if err == nil {
				err = config.Validate()
			}
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %v, want one line with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fs.Lookup("interruption-taint").Value.String(); got != tc.taints {
				t.Errorf("taints %q, want %q", got, tc.taints)
			}
			for cause, want := range tc.notice {
				if config.Notice[cause] != want {
					t.Errorf("notice of %s is %v, want %v", cause, config.Notice[cause], want)
				}
			}
		})
	}
}

// FuzzParseTaintRule: whatever is accepted prints as what is read back.
func FuzzParseTaintRule(f *testing.F) {
	for _, seed := range []string{"a", "a/b=c:NoExecute", "a=", ":", "a:b:NoSchedule", "=:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := ParseTaintRule(text)
		if err != nil {
			return
		}
		if rule.String() != text {
			t.Errorf("%q reads as %q", text, rule)
		}
	})
}
