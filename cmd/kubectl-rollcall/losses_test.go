package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// apiServer answers GETs of the paths with a status and a body, and everything else with 404.
func apiServer(t *testing.T, answers map[string]func() (int, string)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		if answer, known := answers[r.URL.Path]; known {
			status, body = answer()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func forbidden() (int, string) {
	return http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
}

const (
	allRecords  = "/apis/rollcall.dev/v1alpha1/podlosses"
	shopRecords = "/apis/rollcall.dev/v1alpha1/namespaces/shop/podlosses"
	leasePath   = "/apis/coordination.k8s.io/v1/namespaces/rollcall-system/leases/rollcall-controller"
)

func TestLossesMistakes(t *testing.T) {
	unknown := apiServer(t, nil)
	refused := apiServer(t, map[string]func() (int, string){allRecords: forbidden, shopRecords: forbidden})
	for name, tc := range map[string]struct {
		args        []string
		status      int
		error, hint string
	}{
		"argument":        {[]string{"n1"}, exitUsage, `unexpected argument "n1"`, "--help"},
		"unknown output":  {[]string{"-o", "xml"}, exitUsage, `there is no output format "xml"`, "table, wide, json, yaml"},
		"negative time":   {[]string{"--since", "-1h"}, exitUsage, "must not be negative", "--since 24h"},
		"malformed lease": {[]string{"--lease", "a"}, exitUsage, "malformed --lease", "--lease rollcall-system"},
		"not installed":   {[]string{"--server", unknown}, exitError, "does not know PodLoss", "deploy/crds/podlosses.yaml"},
		"refused":         {[]string{"--server", refused}, exitError, "of all namespaces", "-n NAMESPACE"},
		"refused in one":  {[]string{"--server", refused, "-n", "shop"}, exitError, "in namespace shop", "podlosses.rollcall.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rollcall(t, strings.NewReader(""), append([]string{"losses"}, tc.args...)...)
			if r.status != tc.status || !strings.Contains(r.stderr, tc.error) || !strings.Contains(r.stderr, tc.hint) || r.stdout != "" {
				t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
			}
		})
	}
}

// The records of one namespace, in pages, with a Lease that may not be read.
func TestLossesOfANamespace(t *testing.T) {
	lost := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	record := func(name string) string {
		return `{"apiVersion":"rollcall.dev/v1alpha1","kind":"PodLoss","metadata":{"namespace":"shop","name":"` + name + `.1"},
			"spec":{"pod":{"name":"` + name + `","uid":"1"},"node":"n1","verdict":"Lost","reason":"NoController","state":"Committed","cause":"c","since":"` + lost + `",
			"manifest":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"}}},"status":{"state":"Closed","lostAt":"` + lost + `"}}`
	}
	page := 0
	server := apiServer(t, map[string]func() (int, string){
		leasePath: forbidden,
		shopRecords: func() (int, string) {
			page++
			if page%2 == 1 {
				return http.StatusOK, `{"apiVersion":"rollcall.dev/v1alpha1","kind":"PodLossList","metadata":{"continue":"more"},"items":[` + record("a") + `]}`
			}
			return http.StatusOK, `{"apiVersion":"rollcall.dev/v1alpha1","kind":"PodLossList","metadata":{},"items":[` + record("b") + `]}`
		},
	})
	args := []string{"losses", "--server", server, "-n", "shop"}
	table := rollcall(t, strings.NewReader(""), args...)
	if table.status != exitOK || !strings.Contains(table.stdout, "2 pods lost and 0 at risk in the last 24h.") ||
		!strings.Contains(table.stdout, "you may not read the Lease rollcall-system/rollcall-controller") {
		t.Errorf("%+v", table)
	}
	var answer struct{ Losses []map[string]any }
	if r := rollcall(t, strings.NewReader(""), append(args, "-o", "json")...); json.Unmarshal([]byte(r.stdout), &answer) != nil || len(answer.Losses) != 2 {
		t.Errorf("%+v", r)
	}
	if r := rollcall(t, strings.NewReader(""), append(args, "-o", "yaml", "--since", "30m")...); strings.Contains(r.stdout, "kind: Pod") || r.status != exitOK {
		t.Errorf("%+v", r)
	}
}
