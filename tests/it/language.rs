//! The language from outside: good and bad files.

use std::path::Path;
use std::path::PathBuf;

use windrow::definition::Library;
use windrow::plan;

fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind)
}

fn rendered(library: &Library) -> String {
    let all = library.diagnostics().iter().map(|diagnostic| diagnostic.render(library.sources(), false));
    all.collect::<Vec<_>>().join("\n\n")
}

#[test]
fn good_workflows_have_no_mistakes_and_survive_being_pinned() {
    let library = Library::load(&[fixtures("good")]);
    assert_eq!(rendered(&library), "");
    assert!(library.workflows().count() >= 1);
    for workflow in library.workflows() {
        let plan = plan::from_library(&library, &workflow.name).unwrap();
        let text = serde_json::to_string(&plan.normalised()).unwrap();
        let again = plan::from_normalised(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(again.digest, plan.digest, "{}", workflow.name);
        assert_eq!(format!("{:?}", again.workflow), format!("{workflow:?}"));
        assert_eq!(again.graph.order(), plan.graph.order());
    }
}
