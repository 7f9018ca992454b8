use std::sync::Arc;

use super::*;
use crate::action::secret::placeholder;
use crate::failure::FailureClass;
use crate::time::SystemClock;

const LIMIT: Duration = Duration::from_secs(20);

struct Lab {
    folder: tempfile::TempDir,
    processes: Processes,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(SystemClock::new());
        let processes =
            Processes::new(&folder.path().join("proc"), Secrets::default(), clock).expect("a place");
        Self { folder, processes: Processes { mercy: Duration::from_secs(1), ..processes } }
    }

    /// A second agent over the same files: it knows nothing of the first.
    fn restarted(&self) -> Processes {
        let clock = Arc::new(SystemClock::new());
        Processes::new(&self.folder.path().join("proc"), Secrets::default(), clock).expect("a place")
    }

    async fn start(&self, args: Value) -> Result<Gated, Failure> {
        self.processes.start(&origin(), &args, None).await
    }

    async fn shell(&self, script: &str) -> Gated {
        self.start(json!({"command": ["sh", "-c", script]})).await.expect("started")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn origin() -> Origin {
    Origin { run: "01run".into(), workflow: "w".into(), unit: "step[a/b]".into(), attempt: 1 }
}

fn result(answer: Answer) -> Value {
    match answer {
        Answer::Done { changed: true, result, .. } => result,
        other => panic!("not done: {other:?}"),
    }
}

fn failure(answer: Answer) -> (FailureClass, String, String) {
    match answer {
        Answer::Failed(failure) => (failure.class, failure.code, failure.message),
        other @ Answer::Done { .. } => panic!("not failed: {other:?}"),
    }
}

/// Waits for what another process does, at a beat.
async fn until(mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !holds() {
        crate::time::Clock::sleep(&clock, Duration::from_millis(20)).await;
    }
}

fn group_is_empty(mark: &Mark) -> bool {
    let pid = rustix::process::Pid::from_raw(i32::try_from(mark.pid).expect("a pid")).expect("not zero");
    rustix::process::test_kill_process_group(pid).is_err()
}

#[tokio::test]
async fn a_program_gets_its_arguments_and_environment_as_they_are() {
    let lab = Lab::new();
    let script =
        r#"printf '%s|%s|' "$1" "$VALUE"; pwd; printf 'to err' >&2; env | grep -c SECRET_OF_AGENT; exit 3"#;
    let args = json!({"command": ["sh", "-c", script, "sh", "a b; $(exit 9) \"'"], "env": {"VALUE": "x\ny"},
                      "dir": "/", "expect": [3]});
    let answer = lab.start(args).await.expect("started").release(LIMIT, None).await;
    let expected = json!({"exit_code": 3, "stdout": "a b; $(exit 9) \"'|x\ny|/\n0\n", "stderr": "to err"});
    assert_eq!(result(answer), expected);
}

#[tokio::test]
async fn nothing_runs_before_the_gate_is_opened_and_nothing_at_all_if_the_agent_goes() {
    let lab = Lab::new();
    let witness = lab.path("ran");
    let gated = lab.shell(&format!("touch {}", witness.display())).await;
    let mark = gated.mark().clone();
    assert!(mark.is_alive() && !witness.exists());
    drop(gated);
    until(|| !mark.is_alive()).await;
    let answer = lab.restarted().adopt(&origin(), &mark, LIMIT, None).await;
    let (class, code, _) = failure(answer);
    assert_eq!(
        (class, code.as_str()),
        (FailureClass::Retryable, codes::PROCESS_START),
        "it may be started again"
    );
    assert!(!witness.exists());
}

#[tokio::test]
async fn an_orphan_is_found_with_its_result_and_never_doubled() {
    let lab = Lab::new();
    let (go, count) = (lab.path("go"), lab.path("count"));
    let script = format!(
        "echo x >>{count}; until [ -e {go} ]; do sleep 0.02; done; echo late; exit 7",
        count = count.display(),
        go = go.display()
    );
    let gated = lab.shell(&script).await;
    let mark = gated.mark().clone();
    // The agent is gone after it opened the gate: the future is dropped, the program runs on.
    let released = tokio::time::timeout(Duration::from_millis(1), gated.release(LIMIT, None)).await;
    assert!(released.is_err());
    until(|| count.exists()).await;

    let agent = lab.restarted();
    assert!(mark.is_alive());
    let adopted = tokio::spawn(async move { agent.adopt(&origin(), &mark, LIMIT, None).await });
    fs::write(&go, "").expect("written");
    let (class, code, message) = failure(adopted.await.expect("adopted"));
    assert_eq!((class, code.as_str()), (FailureClass::Retryable, codes::PROCESS_EXIT));
    assert!(message.starts_with("exit code 7"), "{message}");
    assert_eq!(fs::read_to_string(&count).expect("there"), "x\n");
}

#[tokio::test]
async fn a_result_is_there_after_the_program_has_ended_and_lost_without_its_files() {
    let lab = Lab::new();
    let gated = lab.shell("echo done").await;
    let mark = gated.mark().clone();
    drop(tokio::time::timeout(Duration::from_millis(1), gated.release(LIMIT, None)).await);
    until(|| !mark.is_alive()).await;
    let answer = lab.restarted().adopt(&origin(), &mark, LIMIT, None).await;
    assert_eq!(result(answer)["stdout"], "done\n");

    let before_reboot = Mark { boot_id: "another boot".into(), ..mark };
    let answer = lab.restarted().adopt(&origin(), &before_reboot, LIMIT, None).await;
    assert_eq!(result(answer)["exit_code"], 0, "files outlive a boot");
    lab.processes.forget("01run").expect("removed");
    let (class, code, _) = failure(lab.restarted().adopt(&origin(), &before_reboot, LIMIT, None).await);
    assert_eq!((class, code.as_str()), (FailureClass::Unknown, codes::PROCESS_LOST));
    lab.processes.forget("01run").expect("nothing left to remove");
}

#[tokio::test]
async fn when_time_is_up_the_whole_group_goes() {
    let lab = Lab::new();
    // One that ends when told, and one in the background that does not listen.
    let script = "(trap '' TERM; sleep 600) & sleep 600";
    let gated = lab.shell(script).await;
    let mark = gated.mark().clone();
    let (class, code, _) = failure(gated.release(Duration::from_millis(300), None).await);
    assert_eq!((class, code.as_str()), (FailureClass::Unknown, codes::TIMEOUT));
    until(|| group_is_empty(&mark)).await;
}

#[tokio::test]
async fn what_lingers_after_the_program_does_not_hold_its_result_back() {
    let lab = Lab::new();
    let gated = lab.shell("sleep 600 & echo done").await;
    let mark = gated.mark().clone();
    assert_eq!(result(gated.release(LIMIT, None).await)["stdout"], "done\n");
    until(|| group_is_empty(&mark)).await;

    let gated = lab.shell("sleep 600 >/dev/null 2>&1 & exit 0").await;
    let mark = gated.mark().clone();
    result(gated.release(LIMIT, None).await);
    until(|| group_is_empty(&mark)).await;
}

#[tokio::test]
async fn an_orphan_can_be_killed() {
    let lab = Lab::new();
    let gated = lab.shell("sleep 600").await;
    let mark = gated.mark().clone();
    drop(tokio::time::timeout(Duration::from_millis(50), gated.release(LIMIT, None)).await);
    Processes::kill(&mark);
    until(|| group_is_empty(&mark)).await;
    let answer = lab.restarted().adopt(&origin(), &mark, LIMIT, None).await;
    assert_eq!(failure(answer).1, codes::PROCESS_LOST);
}

#[tokio::test]
async fn output_is_capped_with_a_mark_and_invalid_utf_8_survives_around_it() {
    let lab = Lab::new();
    let script = r"printf 'a\377b'; head -c 5000000 /dev/zero | tr '\0' x; printf 'e\376' >&2";
    let result = result(lab.shell(script).await.release(LIMIT, None).await);
    let out = result["stdout"].as_str().expect("text");
    assert!(out.starts_with("a\u{fffd}bxxx"), "{}", &out[..10]);
    let cut = 5_000_003 - OUTPUT_BYTES_MAX;
    assert!(out.ends_with(&format!("x\n[{cut} more bytes cut]")), "{}", &out[out.len() - 60..]);
    assert_eq!(result["stderr"], "e\u{fffd}");
}

#[tokio::test]
async fn each_way_to_end_has_its_class() {
    let lab = Lab::new();
    let rows = [
        (json!(["sh", "-c", "echo why >&2; exit 4"]), FailureClass::Retryable, codes::PROCESS_EXIT),
        (json!(["sh", "-c", "kill -9 $$"]), FailureClass::Unknown, codes::PROCESS_KILLED),
        (json!(["/no/such/program"]), FailureClass::Permanent, codes::PROCESS_START),
        (json!(["eval", "exit 0"]), FailureClass::Permanent, codes::PROCESS_START),
        (json!(["exit", "0"]), FailureClass::Permanent, codes::PROCESS_START),
    ];
    for (command, class, code) in rows {
        let gated = lab.start(json!({"command": command})).await.expect("a gate");
        let (got, got_code, message) = failure(gated.release(LIMIT, None).await);
        assert_eq!((got, got_code.as_str()), (class, code), "{command}: {message}");
    }
    let elsewhere = json!({"command": ["true"], "dir": "/no/such/folder"});
    assert_eq!(lab.start(elsewhere).await.err().expect("refused").code, codes::PROCESS_START);
    assert_eq!(lab.start(json!({"command": []})).await.err().expect("refused").code, codes::BAD_REQUEST);
}

#[tokio::test]
async fn a_secret_reaches_the_program_and_nothing_else() {
    let lab = Lab::new();
    let file = lab.path("password");
    fs::write(&file, "hunter2-hunter2").expect("written");
    let secret = placeholder(&format!("file:{}", file.display()));
    let script = r#"[ "$PW" = hunter2-hunter2 ] && echo "it is $PW"; echo "$PW" >&2"#;
    let args = json!({"command": ["sh", "-c", script], "env": {"PW": secret}});
    let gated = lab.start(args).await.expect("started");
    let mark = gated.mark().clone();
    let arguments = fs::read(format!("/proc/{}/cmdline", mark.pid)).expect("alive");
    assert!(!String::from_utf8_lossy(&arguments).contains("=hunter2"));
    drop(tokio::time::timeout(Duration::from_millis(1), gated.release(LIMIT, None)).await);

    let text = result(lab.restarted().adopt(&origin(), &mark, LIMIT, None).await).to_string();
    assert!(text.contains("it is ⟦masked⟧") && !text.contains("hunter2"), "{text}");
    let place = lab.processes.place(&origin()).0;
    for entry in fs::read_dir(place).expect("there") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let text = fs::read_to_string(&path).unwrap_or_default();
            assert!(!text.contains("hunter2"), "{}: {text}", path.display());
        }
    }

    let args = json!({"command": ["echo", format!("--password={secret}")]});
    assert_eq!(lab.start(args).await.err().expect("refused").code, codes::SECRET_IN_ARGV);
}

#[tokio::test]
async fn output_that_cannot_be_masked_any_more_is_withheld() {
    let lab = Lab::new();
    let file = lab.path("password");
    fs::write(&file, "hunter2-hunter2").expect("written");
    let secret = placeholder(&format!("file:{}", file.display()));
    let args = json!({"command": ["sh", "-c", "echo $PW"], "env": {"PW": secret}});
    let gated = lab.start(args).await.expect("started");
    let mark = gated.mark().clone();
    drop(tokio::time::timeout(Duration::from_millis(1), gated.release(LIMIT, None)).await);
    until(|| !mark.is_alive()).await;
    fs::remove_file(&file).expect("removed");
    let text = result(lab.restarted().adopt(&origin(), &mark, LIMIT, None).await).to_string();
    assert!(text.contains("[withheld: ") && !text.contains("hunter2"), "{text}");
}
