package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/readiness"
)

// poll is the period in which /pods is asked: it has no watch.
const poll = time.Second

// Pods is the kubelet's /pods over HTTPS, with the right nodes/pods: that lets a reader see every node's pods, so it is
// off unless asked for. It never goes through nodes/proxy, which is more than reading (facts/static-pods.md section 2.5).
type Pods struct {
	URL       string // https://…/pods
	CAFile    string // of the kubelet's serving certificate
	TokenFile string

	client *http.Client
}

// Name implements Source.
func (p *Pods) Name() string { return readiness.KubeletPods }

// Check tells whether the configuration can be used.
func (p *Pods) Check() error {
	if !strings.HasPrefix(p.URL, "https://") {
		return fmt.Errorf("the kubelet's pods are read over https only: %q", p.URL)
	}
	_, err := p.roots()
	return err
}

func (p *Pods) roots() (*x509.CertPool, error) {
	pem, err := os.ReadFile(p.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the kubelet's CA: no certificate in %s", p.CAFile)
	}
	return pool, nil
}

// Run implements Source. An answer counts once the next one agrees: right after its start a kubelet leaves pods out.
func (p *Pods) Run(ctx context.Context, report func(Answer)) {
	report(p.away("not asked yet"))
	var last Answer
	for ctx.Err() == nil {
		answer := p.ask(ctx)
		confirmed := answer.State != Known || last.State == Known && slices.EqualFunc(last.Pods, answer.Pods, equalPods)
		if last = answer; confirmed && ctx.Err() == nil {
			report(answer)
		}
		sleep(ctx, poll)
	}
}

func equalPods(a, b readiness.StaticPod) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.Hash == b.Hash
}

func (p *Pods) away(why string) Answer { return Answer{State: Waiting, Why: why} }

func (p *Pods) ask(ctx context.Context) Answer {
	data, err := p.get(ctx)
	if err != nil {
		return p.away(err.Error())
	}
	expected, err := readiness.DecodeKubeletPods(data)
	switch {
	case err != nil:
		return p.away(err.Error())
	case expected.Unknown != "":
		return p.away(expected.Unknown)
	}
	return Answer{State: Known, Pods: expected.Pods}
}

func (p *Pods) get(ctx context.Context) ([]byte, error) {
	if p.client == nil {
		roots, err := p.roots()
		if err != nil {
			return nil, err
		}
		p.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(p.TokenFile) // it is rotated
	if err != nil {
		return nil, fmt.Errorf("reading the token for the kubelet: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return io.ReadAll(io.LimitReader(response.Body, maxList))
	case http.StatusForbidden, http.StatusUnauthorized:
		return nil, fmt.Errorf("the kubelet refuses /pods (%s): it needs the right to get nodes/pods", response.Status)
	}
	return nil, fmt.Errorf("the kubelet answers %s", response.Status)
}
