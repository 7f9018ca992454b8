//! A certificate authority that lives as long as one test run.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Signs the certificates of one control plane and writes them as PEM files into a folder.
pub(crate) struct Authority<'a> {
    dir: &'a Path,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    /// Makes an authority and writes `ca.crt` into `dir`.
    pub(crate) fn new(dir: &'a Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "windrow test authority");
        let key = KeyPair::generate().unwrap();
        fs::write(dir.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { dir, issuer: Issuer::new(params, key) }
    }

    /// Writes `serving.crt` and `serving.key` for a server on 127.0.0.1.
    pub(crate) fn serving(&self) {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        self.sign("serving", &params);
    }

    /// Writes `<file>.crt`, `<file>.key` and `<file>.kubeconfig`, which logs in at `url` as `user`, a member of `group`.
    pub(crate) fn client(&self, file: &str, user: &str, group: &str, url: &str) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.sign(file, &params);
        let file = |extension: &str| self.dir.join(format!("{file}.{extension}"));
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": self.dir.join("ca.crt")}}],
            "users": [{"name": user, "user": {"client-certificate": file("crt"), "client-key": file("key")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        });
        fs::write(file("kubeconfig"), kubeconfig.to_string()).unwrap();
    }

    /// Writes `<name>.key` and `<name>.pub`, a pair of keys without a certificate.
    pub(crate) fn key_pair(&self, name: &str) {
        let pair = KeyPair::generate().unwrap();
        fs::write(self.dir.join(format!("{name}.key")), pair.serialize_pem()).unwrap();
        fs::write(self.dir.join(format!("{name}.pub")), pair.public_key_pem()).unwrap();
    }

    fn sign(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.dir.join(format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(self.dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
