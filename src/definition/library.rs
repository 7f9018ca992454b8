//! All workflows and knowledge files that this process knows.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::definition::Workflow;
use crate::definition::codes;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::knowledge::Knowledge;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::node::Sources;
use crate::definition::normal;
use crate::definition::read;
use crate::definition::read::Files;
use crate::definition::report::Report;
use crate::definition::shipped;
use crate::definition::validate;
use crate::id::WorkflowName;

/// The folder of knowledge files inside of a workflow folder.
const KNOWLEDGE_DIR: &str = "knowledge";
/// Most files of one folder: bounds the time of a start.
const FILES_MAX: usize = 5_000;

/// What was loaded, good and bad.
#[derive(Debug)]
pub struct Library {
    workflows: BTreeMap<WorkflowName, Loaded>,
    knowledge: Arc<Knowledge>,
    report: Report,
}

/// A workflow that may be run, and the document that it was read from.
#[derive(Debug)]
struct Loaded {
    workflow: Arc<Workflow>,
    document: Value,
}

/// A file to be read.
struct Document {
    /// The file and those of its manifests.
    files: Range<usize>,
    /// The name that it must have.
    stem: String,
    root: Node,
}

impl Library {
    /// Loads every `*.toml` of `dirs` and of their `knowledge` folders, then what is built in. Where two workflows have
    /// one name, the first wins, so that a folder can replace what is built in.
    pub fn load(dirs: &[PathBuf]) -> Self {
        let mut loader = Loader::default();
        for dir in dirs {
            loader.dir(dir);
        }
        loader.shipped();
        loader.finish()
    }

    /// Loads single files and folders without what is built in, except that workflows may call it and name what it knows.
    pub fn load_only(paths: &[PathBuf]) -> Self {
        let mut loader = Loader::default();
        for path in paths {
            if path.is_dir() {
                loader.dir(path);
            } else {
                loader.file(path);
            }
        }
        let own = loader.names();
        if loader.documents.iter().any(|document| needs_others(&document.root)) {
            loader.shipped();
        }
        let mut library = loader.finish();
        library.workflows.retain(|name, _| own.contains(&name.to_string()));
        library
    }

    /// Only what is built in.
    pub fn built_in() -> Self {
        Self::load(&[])
    }

    /// Reads workflows from texts by file name, for tests and for programs that make their own.
    pub fn from_texts<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut loader = Loader::default();
        for (path, text) in texts {
            loader.text(path, text, &NoFiles);
        }
        loader.finish()
    }

    /// The workflow of that name, if it has no errors.
    pub fn get(&self, name: &str) -> Option<&Arc<Workflow>> {
        self.workflows.get(name).map(|loaded| &loaded.workflow)
    }

    /// Every workflow without errors, by name.
    pub fn workflows(&self) -> impl Iterator<Item = &Arc<Workflow>> {
        self.workflows.values().map(|loaded| &loaded.workflow)
    }

    /// What is known about failures.
    pub fn knowledge(&self) -> Arc<Knowledge> {
        self.knowledge.clone()
    }

    /// Every mistake that was found.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.report.diagnostics
    }

    /// The files that the diagnostics point into.
    pub fn sources(&self) -> &Sources {
        &self.report.sources
    }

    /// One document with the workflow, the files beside it and every workflow that it calls. A run pins it; reading it
    /// again needs no files. None if there is no such workflow without errors.
    pub fn normalised(&self, name: &WorkflowName) -> Option<Value> {
        let mut documents = BTreeMap::new();
        let mut open = vec![name.clone()];
        while let Some(name) = open.pop() {
            if documents.contains_key(&name) {
                continue;
            }
            let loaded = self.workflows.get(&name)?;
            open.extend(loaded.workflow.children());
            documents.insert(name, &loaded.document);
        }
        Some(normal::document(name, &documents))
    }
}

#[derive(Default)]
struct Loader {
    report: Report,
    documents: Vec<Document>,
    knowledge: Vec<Node>,
}

impl Loader {
    fn names(&self) -> Vec<String> {
        self.documents.iter().map(|document| document.stem.clone()).collect()
    }

    fn dir(&mut self, dir: &Path) {
        for path in self.toml_files(dir) {
            self.file(&path);
        }
        let knowledge = dir.join(KNOWLEDGE_DIR);
        if knowledge.is_dir() {
            for path in self.toml_files(&knowledge) {
                self.file(&path);
            }
        }
    }

    fn toml_files(&mut self, dir: &Path) -> Vec<PathBuf> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                self.unreadable(dir, &error.to_string());
                return vec![];
            }
        };
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml") && path.is_file())
            .collect();
        files.sort();
        if files.len() > FILES_MAX {
            self.unreadable(dir, &format!("it holds {} files, at most {FILES_MAX} are allowed", files.len()));
            files.clear();
        }
        files
    }

    /// A workflow, or what is known of failures: that is told by the folder.
    fn file(&mut self, path: &Path) {
        let Some(text) = self.read(path) else { return };
        let dir = path.parent().unwrap_or(Path::new("."));
        let shown = path.display().to_string();
        if dir.file_name().is_some_and(|name| name == KNOWLEDGE_DIR) {
            self.knowledge_text(&shown, &text);
        } else {
            self.text(&shown, &text, &Beside { dir: dir.to_owned() });
        }
    }

    fn read(&mut self, path: &Path) -> Option<String> {
        match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) => {
                self.unreadable(path, &error.to_string());
                None
            }
        }
    }

    fn unreadable(&mut self, path: &Path, reason: &str) {
        let file = self.report.sources.add(path.display().to_string(), "");
        let message = format!("cannot read {}: {reason}", path.display());
        self.report.error(&codes::BAD_FILE, &Place { file, range: 0..0 }, message);
    }

    fn shipped(&mut self) {
        for (path, text) in shipped::WORKFLOWS {
            self.text(path, text, &shipped::ShippedFiles);
        }
        for (path, text) in shipped::KNOWLEDGE {
            self.knowledge_text(path, text);
        }
    }

    fn text(&mut self, path: &str, text: &str, files: &dyn Files) {
        let stem =
            Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if self.documents.iter().any(|document| document.stem == stem) {
            return;
        }
        let first = self.report.files();
        let Some(mut root) = self.toml(path, text) else { return };
        read::inline(&mut self.report, &mut root, files);
        self.documents.push(Document { files: first..self.report.files(), stem, root });
    }

    fn knowledge_text(&mut self, path: &str, text: &str) {
        let root = self.toml(path, text);
        self.knowledge.extend(root);
    }

    fn toml(&mut self, path: &str, text: &str) -> Option<Node> {
        let file = self.report.sources.add(path, text);
        let (root, errors) = Node::from_toml(&self.report.sources, file);
        for error in &errors {
            self.report.error(&codes::SYNTAX, &error.place, error.message.clone());
        }
        errors.is_empty().then_some(root)
    }

    fn finish(mut self) -> Library {
        let (mut entries, mut relations) = (vec![], vec![]);
        for root in &self.knowledge {
            let known = read::read_knowledge(&mut self.report, root);
            entries.extend(known.0);
            relations.extend(known.1);
        }
        let mut drafts = vec![];
        for document in &self.documents {
            if let Some(draft) = read::read_workflow(&mut self.report, &document.root, document.files.clone())
            {
                validate::file_name(&mut self.report, &draft, &document.stem);
                drafts.push(draft);
            }
        }
        let known = entries.iter().map(|entry| entry.name.as_str()).collect();
        let good = validate::all(&mut self.report, &drafts, Some(&known));
        let mut workflows = BTreeMap::new();
        for (draft, _) in drafts.into_iter().zip(good).filter(|(_, good)| *good) {
            let document = normal::workflow_document(draft.root);
            let workflow = Arc::new(draft.workflow.with_gate());
            workflows.insert(workflow.name.clone(), Loaded { workflow, document });
        }
        self.report.sort();
        Library { workflows, knowledge: Arc::new(Knowledge::new(entries, relations)), report: self.report }
    }
}

/// True if something in the document calls another workflow or names a known failure.
fn needs_others(node: &Node) -> bool {
    match &node.kind {
        Kind::List(items) => items.iter().any(needs_others),
        Kind::Table(entries) => entries.iter().any(|entry| match (entry.key.as_str(), &entry.node.kind) {
            ("uses", Kind::Text(text)) => text.value == "workflow",
            ("destructive" | "known", _) => true,
            _ => needs_others(&entry.node),
        }),
        _ => false,
    }
}

/// Files of the folder that a workflow was read from.
struct Beside {
    dir: PathBuf,
}

impl Files for Beside {
    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.dir.join(path)).map_err(|error| error.to_string())
    }

    fn shown(&self, path: &str) -> String {
        self.dir.join(path).display().to_string()
    }
}

/// For a text without a folder.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("the workflow was not read from a folder".to_owned())
    }

    fn shown(&self, path: &str) -> String {
        path.to_owned()
    }
}
