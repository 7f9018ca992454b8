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

/// Where a cluster and the right to use it are described.
#[derive(Debug, Clone)]
pub enum Source {
    /// A kubeconfig; without a path, what `KUBECONFIG` or `~/.kube/config` say, or else the pod's service account.
    Kubeconfig {
        /// The file.
        path: Option<PathBuf>,
        /// The context; the current one if not set.
        context: Option<String>,
    },
    /// The service account of the pod.
    InCluster,
}

impl Source {
    /// A client, and the address of the server.
    pub(super) async fn connect(&self) -> Result<(Client, String), Failure> {
        let mut config = match self {
            Self::InCluster => Config::incluster().map_err(|error| self.unusable(&error))?,
            Self::Kubeconfig { path, context } => {
                let read = match path {
                    Some(path) => Kubeconfig::read_from(path),
                    None => Kubeconfig::read(),
                };
                match read {
                    Ok(file) => self.of_file(file, context.as_deref()).await?,
                    Err(KubeconfigError::ReadConfig(error, _))
                        if path.is_none() && error.kind() == ErrorKind::NotFound =>
                    {
                        Config::incluster().map_err(|_| self.missing())?
                    }
                    Err(KubeconfigError::FindPath) => Config::incluster().map_err(|_| self.missing())?,
                    Err(error) => return Err(self.unusable(&error)),
                }
            }
        };
        // Repeating is the engine's business: kube would repeat a POST up to 15 times without a word (C1).
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        Ok((Client::try_from(config).map_err(|error| self.unusable(&error))?, server))
    }

    async fn of_file(&self, file: Kubeconfig, context: Option<&str>) -> Result<Config, Failure> {
        let known: Vec<String> = file.contexts.iter().map(|context| context.name.clone()).collect();
        if let Some(wanted) = context.filter(|wanted| !known.iter().any(|name| name == wanted)) {
            let known = known.join(", ");
            let text = format!("{} has no context `{wanted}`; it has: {known}", self.named());
            return Err(Failure::permanent(codes::CONFIGURATION, text));
        }
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(|error| self.unusable(&error))
    }

    /// For messages.
    fn named(&self) -> String {
        match self {
            Self::Kubeconfig { path: Some(path), .. } => format!("the kubeconfig {}", path.display()),
            Self::Kubeconfig { path: None, .. } => match std::env::var("KUBECONFIG") {
                Ok(paths) if !paths.is_empty() => format!("the kubeconfig {paths} (of KUBECONFIG)"),
                _ => "the kubeconfig ~/.kube/config".to_owned(),
            },
            Self::InCluster => "the service account of the pod".to_owned(),
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
