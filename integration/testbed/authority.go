// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of a test's cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// identity is a certificate and its key, as files.
type identity struct{ cert, key string }

// newAuthority makes one, whose own certificate is in dir.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	template := certificate("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, writePEM(a.file(), "CERTIFICATE", der)
}

// file is the authority's certificate.
func (a *authority) file() string { return filepath.Join(a.dir, "authority.crt") }

// sign makes the certificate of a user of some groups, that is one of a server
// on the loopback too.
func (a *authority) sign(user string, groups ...string) (identity, error) {
	template := certificate(user)
	template.Subject.Organization = groups
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return identity{}, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return identity{}, err
	}
	name := filepath.Join(a.dir, template.SerialNumber.Text(16))
	id := identity{cert: name + ".crt", key: name + ".key"}
	if err := writePEM(id.cert, "CERTIFICATE", der); err != nil {
		return identity{}, err
	}
	return id, writePEM(id.key, "EC PRIVATE KEY", secret)
}

// certificate is what all have in common.
func certificate(user string) *x509.Certificate {
	serial := make([]byte, 8)
	_, _ = rand.Read(serial) // never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial), Subject: pkix.Name{CommonName: user},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func writePEM(file, kind string, data []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600)
}
