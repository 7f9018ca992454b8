//! A failure as data: what happened to which object, what is known about the cause, what to do next.

use serde::{Deserialize, Serialize};

/// What a failure allows next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The same attempt may succeed later; it had no effect.
    Retryable,
    /// Repeating it is useless.
    Permanent,
    /// It cannot be told whether it took effect: look at the world first.
    Unknown,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What may be done next.
    pub class: FailureClass,
    /// A stable code; `windrow explain CODE` tells more.
    pub code: String,
    /// One or more sentences naming the object.
    pub message: String,
    /// The same in Chinese, where the workflow or the engine has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_zh: Option<String>,
    /// The known cause, from the knowledge files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Bilingual>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Bilingual>,
    /// The least time to wait before a retry, in milliseconds, as the server asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// How long the same failure may last before repeating is useless, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up_after_ms: Option<u64>,
}

/// What the knowledge files say about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Why it happens.
    pub cause: Bilingual,
    /// What to do about it.
    pub remedy: Bilingual,
}

/// A text in English and, where there is one, Chinese.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bilingual {
    /// English.
    pub en: String,
    /// Chinese.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zh: Option<String>,
}

impl Bilingual {
    /// A text in both languages.
    pub fn new(en: impl Into<String>, zh: impl Into<String>) -> Self {
        Self { en: en.into(), zh: Some(zh.into()) }
    }

    /// The Chinese text, or the English one where there is none.
    pub fn in_chinese(&self) -> &str {
        self.zh.as_deref().unwrap_or(&self.en)
    }
}

/// A text that has no Chinese.
impl From<String> for Bilingual {
    fn from(en: String) -> Self {
        Self { en, zh: None }
    }
}

/// The same.
impl From<&str> for Bilingual {
    fn from(en: &str) -> Self {
        en.to_owned().into()
    }
}

/// A code that is printed, with what it means and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Stable; never used for something else.
    pub code: &'static str,
    /// The meaning in English.
    pub en: &'static str,
    /// The same in Chinese.
    pub zh: &'static str,
}

/// The table of the codes of one module: a constant for each, and `ALL` for `windrow explain`.
macro_rules! codes {
    ($($name:ident = $code:literal: $en:literal, $zh:literal;)*) => {
        $(#[doc = $en] pub const $name: &str = $code;)*

        /// Every code with its meaning.
        pub const ALL: &[crate::failure::Code] =
            &[$(crate::failure::Code { code: $code, en: $en, zh: $zh }),*];
    };
}
pub(crate) use codes;

impl Failure {
    /// A failure with a code and a message, cause and remedy unknown.
    pub fn new(class: FailureClass, code: &str, message: impl Into<Bilingual>) -> Self {
        let Bilingual { en, zh } = message.into();
        Self {
            class,
            code: code.to_owned(),
            message: en,
            message_zh: zh,
            cause: None,
            remedy: None,
            retry_after_ms: None,
            give_up_after_ms: None,
        }
    }

    /// A failure that repeating cannot mend.
    pub fn permanent(code: &str, message: impl Into<Bilingual>) -> Self {
        Self::new(FailureClass::Permanent, code, message)
    }

    /// A failure without effect that may pass.
    pub fn retryable(code: &str, message: impl Into<Bilingual>) -> Self {
        Self::new(FailureClass::Retryable, code, message)
    }

    /// A failure that may have taken effect.
    pub fn unknown(code: &str, message: impl Into<Bilingual>) -> Self {
        Self::new(FailureClass::Unknown, code, message)
    }

    /// The message in each language that it has.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        std::iter::once(&mut self.message).chain(&mut self.message_zh)
    }

    /// The message in both languages.
    pub fn text(&self) -> Bilingual {
        Bilingual { en: self.message.clone(), zh: self.message_zh.clone() }
    }

    /// The same with cause and remedy, unless it has them already.
    #[must_use]
    pub fn explained(mut self, explanation: Option<&Explanation>) -> Self {
        if let Some(explanation) = explanation.filter(|_| self.cause.is_none()) {
            self.cause = Some(explanation.cause.clone());
            self.remedy = Some(explanation.remedy.clone());
        }
        self
    }
}
