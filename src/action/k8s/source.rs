//! Where a cluster is, and the right to use it.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::Config;
use kube::config::KubeConfigOptions;
use kube::config::Kubeconfig;
use kube::config::KubeconfigError;

use crate::action::codes;
use crate::failure::Failure;

/// How long a connection may take. Short: the address may move while a control plane is upgraded.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a cluster and the right to use it are described: a kubeconfig, or else the pod's service account.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The kubeconfig; if not set, what `KUBECONFIG` or `~/.kube/config` say.
    pub path: Option<PathBuf>,
    /// The context; the current one if not set.
    pub context: Option<String>,
}

impl Source {
    /// A client, and the address of the server.
    pub(super) async fn connect(&self) -> Result<(Client, String), Failure> {
        let read = match &self.path {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let mut config = match read {
            Ok(file) => self.of_file(file).await?,
            Err(error) if self.path.is_none() && self.context.is_none() && is_missing(&error) => {
                Config::incluster().map_err(|_| self.missing())?
            }
            Err(error) => return Err(self.unusable(&error)),
        };
        // Repeating is the engine's business: kube would repeat a POST up to 15 times without a word (C1).
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        Ok((Client::try_from(config).map_err(|error| self.unusable(&error))?, server))
    }

    async fn of_file(&self, file: Kubeconfig) -> Result<Config, Failure> {
        let known: Vec<String> = file.contexts.iter().map(|context| context.name.clone()).collect();
        if let Some(wanted) = self.context.as_ref().filter(|wanted| !known.contains(wanted)) {
            let known = known.join(", ");
            let text = format!("{} has no context `{wanted}`; it has: {known}", self.named());
            return Err(Failure::permanent(codes::CONFIGURATION, text));
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(|error| self.unusable(&error))
    }

    /// For messages.
    fn named(&self) -> String {
        match (&self.path, std::env::var("KUBECONFIG")) {
            (Some(path), _) => format!("the kubeconfig {}", path.display()),
            (None, Ok(paths)) if !paths.is_empty() => format!("the kubeconfig {paths} (of KUBECONFIG)"),
            (None, _) => "the kubeconfig ~/.kube/config".to_owned(),
        }
    }

    fn missing(&self) -> Failure {
        let text = format!(
            "no cluster is configured: {} does not exist, and this is no pod with a service account",
            self.named()
        );
        Failure::permanent(codes::NO_CLUSTER, text)
    }

    fn unusable(&self, error: &dyn std::error::Error) -> Failure {
        let mut message = format!("{} cannot be used: {error}", self.named());
        // kube's errors repeat their cause in their own text most of the time.
        for cause in std::iter::successors(error.source(), |cause| cause.source()) {
            let cause = cause.to_string();
            if !message.contains(&cause) {
                message.push_str(": ");
                message.push_str(&cause);
            }
        }
        Failure::permanent(codes::CONFIGURATION, message)
    }
}

/// True if there is no such file.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}
