package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pki is the cluster's own certificate authority and the directory with everything it signed.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certLifetime outlives any demo; a cluster is made anew, never renewed.
const certLifetime = 7 * 24 * time.Hour

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the CA's key: %w", err)
	}
	template := certTemplate("rollcall-demo-ca", "")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, cert: cert, key: key}
	return p, p.write("ca", der, key)
}

func certTemplate(commonName, organization string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	now := time.Now()
	subject := pkix.Name{CommonName: commonName}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(certLifetime),
	}
}

// issue signs a certificate that serves on loopback and identifies its bearer: user commonName in group organization (if any).
// It is written to NAME.crt and NAME.key.
func (p *pki) issue(name, commonName, organization string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the key of %s: %w", name, err)
	}
	template := certTemplate(commonName, organization)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, key.Public(), p.key)
	if err != nil {
		return fmt.Errorf("signing %s: %w", name, err)
	}
	return p.write(name, der, key)
}

func (p *pki) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(p.crt(name), "CERTIFICATE", der); err != nil {
		return err
	}
	return writePEM(p.keyFile(name), "EC PRIVATE KEY", keyDER)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func (p *pki) crt(name string) string     { return filepath.Join(p.dir, name+".crt") }
func (p *pki) keyFile(name string) string { return filepath.Join(p.dir, name+".key") }

// kubeconfig writes a kubeconfig with the certificate NAME, all data inline so that the file can be copied.
func (p *pki) kubeconfig(path, server, name string) error {
	var data [3][]byte
	for i, file := range []string{p.crt("ca"), p.crt(name), p.keyFile(name)} {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		data[i] = b
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["rollcall-demo"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: data[0]}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: data[1], ClientKeyData: data[2]}
	config.Contexts["rollcall-demo"] = &clientcmdapi.Context{Cluster: "rollcall-demo", AuthInfo: name}
	config.CurrentContext = "rollcall-demo"
	return clientcmd.WriteToFile(*config, path)
}
