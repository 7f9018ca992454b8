//! The secret inputs of a run that begins (L11).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::definition::inputs::literal_secret;
use crate::definition::model::InputKind;
use crate::engine::event::Trigger;
use crate::runner::Error;
use crate::runner::Host;
use crate::runner::Start;

/// What may be journalled of the inputs of a run.
pub(super) struct Kept {
    /// The inputs; each secret as a reference, one that was given itself sealed.
    pub(super) inputs: Arc<Value>,
    /// The keyed hash of each secret.
    pub(super) hashes: BTreeMap<String, Arc<str>>,
}

impl Host {
    /// Seals what was given itself, and looks at each secret once.
    ///
    /// # Errors
    /// A secret that somebody starts a run with and that cannot be read. A run that belongs to another one, or undoes
    /// one, begins without: perhaps it does not need it.
    pub(super) async fn keep_inputs(&self, start: &Start) -> Result<Kept, Error> {
        let is_secret = |name: &str| {
            let input = start.plan.workflow.inputs.get(name);
            input.is_some_and(|input| matches!(input.kind, InputKind::Secret))
        };
        let mut inputs = start.inputs.clone();
        let mut hashes = BTreeMap::new();
        let secrets = self.shared.executor.secrets();
        let cluster = self.shared.executor.cluster().ok();
        for (name, value) in inputs.as_object_mut().into_iter().flatten().filter(|(name, _)| is_secret(name))
        {
            let Value::String(reference) = value else { continue };
            if reference.is_empty() {
                continue;
            }
            if let Some(literal) = literal_secret(reference) {
                *reference = secrets.seal_literal(literal).map_err(Error::Refused)?;
            }
            match secrets.fingerprint(reference, cluster).await {
                Ok(hash) => hashes.extend(hash.map(|hash| (name.clone(), hash.into()))),
                Err(failure) if matches!(start.trigger, Trigger::Manual) => {
                    return Err(Error::Refused(failure));
                }
                Err(_) => {}
            }
        }
        Ok(Kept { inputs: Arc::new(inputs), hashes })
    }
}
