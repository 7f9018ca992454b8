//! A real Kubernetes control plane on loopback: etcd, kube-apiserver and the controllers that collect garbage.
//!
//! `tests/controlplane/build.sh` finds or builds the binaries, `run.sh` beside it runs them and ends them.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use windrow::time::{Clock, SystemClock};

use crate::support::certificates::Authority;

/// With this variable set to `1`, a missing control plane fails the tests that need it.
const REQUIRE: &str = "WINDROW_REQUIRE_CONTROLPLANE";
/// The user whose rights the tests choose.
pub(crate) const LIMITED_USER: &str = "system:serviceaccount:harvester-system:operator";
/// The exit status of `build.sh` when there is nothing to run and nothing to build with.
const NOTHING_TO_BUILD_WITH: i32 = 3;
/// A start takes six seconds on two idle cores; a busy machine gets twenty times as long.
const READY_WITHIN: Duration = Duration::from_mins(2);
/// How often a starting server is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A running control plane. It ends when this is dropped, and with this process at the latest.
pub(crate) struct ControlPlane {
    dir: PathBuf,
    servers: Child,
}

impl ControlPlane {
    /// The control plane that the tests of this process share; `None`, with a loud word on stderr, where there is none.
    /// The first call waits until it is ready; it must not come from within a tokio runtime.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: LazyLock<Option<ControlPlane>> =
            LazyLock::new(|| find_binaries().map(|bin| ControlPlane::start(&bin)));
        SHARED.as_ref()
    }

    /// A control plane for one test alone. The same holds as for [`Self::shared`].
    pub(crate) fn own() -> Option<Self> {
        find_binaries().map(|bin| Self::start(&bin))
    }

    fn start(bin: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("windrow-controlplane-").tempdir().unwrap().keep();
        let port = free_port();
        let url = format!("https://127.0.0.1:{port}");
        let authority = Authority::new(&dir);
        authority.serving();
        authority.key_pair("accounts");
        authority.client("admin", "admin", "system:masters", &url);
        authority.client("limited", LIMITED_USER, "limited", &url);
        let servers = Command::new(scripts().join("run.sh"))
            .args([bin, &dir])
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let plane = Self { dir, servers };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(plane.ready());
        // run.sh starts the controllers at this line.
        plane.servers.stdin.as_ref().expect("stdin is a pipe").write_all(b"ready\n").unwrap();
        plane
    }

    /// Where the kubeconfig of an administrator is.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// A client of an administrator, to whom everything is allowed.
    pub(crate) async fn admin(&self) -> Client {
        client_of(Kubeconfig::read_from(self.kubeconfig()).unwrap()).await
    }

    /// A client of [`LIMITED_USER`], to whom nothing is allowed as long as nobody gives it a role.
    pub(crate) async fn limited(&self) -> Client {
        client_of(Kubeconfig::read_from(self.dir.join("limited.kubeconfig")).unwrap()).await
    }

    /// Waits until the API server says that it is ready.
    async fn ready(&self) {
        let (clock, admin) = (SystemClock::new(), self.admin().await);
        let deadline = clock.after(READY_WITHIN);
        let request = || http::Request::get("/readyz").body(vec![]).unwrap();
        while let Err(error) = admin.request_text(request()).await {
            assert!(self.dir.exists(), "the control plane ended; stderr has its last words");
            assert!(clock.now() < deadline, "the control plane is not ready after {READY_WITHIN:?}: {error}");
            clock.sleep(ASK_EVERY).await;
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.servers.stdin.take());
        let _ended = self.servers.wait();
    }
}

/// A client with the identity of a kubeconfig. Its retries are off: the tests look at each answer.
pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane")
}

fn find_binaries() -> Option<PathBuf> {
    let build = Command::new(scripts().join("build.sh")).stderr(Stdio::inherit()).output().unwrap();
    if build.status.success() {
        return Some(PathBuf::from(String::from_utf8(build.stdout).unwrap().trim_end()));
    }
    let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
    assert!(
        build.status.code() == Some(NOTHING_TO_BUILD_WITH) && !required,
        "tests/controlplane/build.sh failed: {}",
        build.status
    );
    // Not through a print macro, which the test harness would swallow for tests that pass.
    let warning = "\n*** LEFT OUT: every test against a real Kubernetes API server. It takes a Go toolchain, or\n\
                   *** KUBEBUILDER_ASSETS with kube-apiserver, kube-controller-manager and etcd. ***\n";
    std::io::stderr().write_all(warning.as_bytes()).unwrap();
    None
}

/// A port that was free a moment ago: kube-apiserver cannot choose one by itself.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
