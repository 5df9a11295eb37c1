package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/readiness"
)

// Times of /pods.
const (
	// poll is the period in which it is asked: it has no watch.
	poll = time.Second
	// agreement is how long a first answer, and the lack of a pod, must stand: the kubelet's own period for its sources
	// (fileCheckFrequency, httpCheckFrequency). One that has just started and waits for a URL lists the API's pods
	// already, and nothing in its answer tells.
	agreement = 20 * time.Second
)

// Pods is the kubelet's /pods over HTTPS, with the right nodes/pods: that lets a reader see every node's pods, so it is
// off unless asked for. It never goes through nodes/proxy, which is more than reading (facts/static-pods.md section 2.5).
type Pods struct {
	URL       string // https://…/pods
	CAFile    string // of the kubelet's serving certificate
	TokenFile string

	client   *http.Client
	first    []readiness.StaticPod // what has been answered ever since, while no answer counts yet
	since    time.Time             // zero where the last attempt failed
	accepted bool                  // an answer has counted
	losses   losses
}

// Name implements Source.
func (p *Pods) Name() string { return readiness.KubeletPods }

// Check tells whether the configuration can be used.
func (p *Pods) Check() error {
	u, err := url.Parse(p.URL)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("the kubelet's pods are read over https only, not from --kubelet-pods-url %q: give %s", p.URL, exampleURL)
	case strings.Contains(u.Path, "/proxy/"):
		// The right to it is the right to run commands in every pod (facts/static-pods.md section 2.5).
		return fmt.Errorf("--kubelet-pods-url %q goes through the API server's nodes/proxy, the right to which is more than reading: "+
			"give the kubelet's own address, %s", p.URL, exampleURL)
	}
	_, err = p.roots()
	return err
}

const exampleURL = "such as https://127.0.0.1:10250/pods"

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

// Run implements Source.
func (p *Pods) Run(ctx context.Context, report func(Answer)) {
	p.losses.window = agreement
	report(p.away("not asked yet"))
	for ctx.Err() == nil {
		answer := p.agreed(p.ask(ctx), time.Now())
		if ctx.Err() == nil {
			report(answer)
		}
		sleep(ctx, poll)
	}
}

// agreed makes of what the kubelet answers at now what may be relied on. The first answer counts once it has stood for
// agreement; after that more pods count at once, and fewer when they have been fewer for as long.
func (p *Pods) agreed(answer Answer, now time.Time) Answer {
	switch {
	case answer.State != Known:
		// The kubelet may be starting anew: what it said before agrees with nothing.
		p.since = time.Time{}
		p.losses.restart()
		return answer
	case p.accepted:
	case p.since.IsZero() || !slices.EqualFunc(p.first, answer.Pods, equalPods):
		p.first, p.since = answer.Pods, now
	}
	if !p.accepted && now.Sub(p.since) < agreement {
		return p.away(fmt.Sprintf("the first answer counts once it has been the same for %s: "+
			"a kubelet that has just started leaves pods out", agreement))
	}
	p.accepted = true
	answer.Pods = p.losses.take(answer.Pods, now)
	return answer
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
