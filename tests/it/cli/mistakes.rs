//! Wrong use: each answer says what happened to which object, why, and what to do; and has its exit code.

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::clusters::cluster;
use super::site::Site;
use super::site::said;

/// Runs a command that must end with that code, and looks for the parts of its answer.
async fn answers(site: &Site, code: i32, args: &[&str], parts: &[&str]) {
    let said = site.expect(code, args).await;
    for part in parts {
        assert!(said.err.contains(part), "`{part}` is not in the answer to {args:?}:\n{}", said.err);
    }
    assert!(said.out.is_empty(), "{args:?}: {}", said.out);
}

/// An API server that refuses everything in the same way; its kubeconfig is in `file`.
async fn refusing(site: &Site, file: &str, code: u16, reason: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    site.write(file, &windrow::sim::Cluster::kubeconfig(listener.local_addr().unwrap()));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            assert!(stream.read(&mut asked).await.unwrap() > 0, "a request");
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
                "message": reason,
            })
            .to_string();
            let head = format!(
                "HTTP/1.1 {code} {reason}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                status.len()
            );
            stream.write_all((head + &status).as_bytes()).await.unwrap();
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_cannot_be_used_is_named_with_the_reason() {
    let site = Site::new();
    let _cluster = cluster(&site, "own", 1).await;
    site.write("away", &windrow::sim::Cluster::kubeconfig("127.0.0.1:1".parse().unwrap()));
    site.write("broken", "clusters: [");
    refusing(&site, "expired", 401, "Unauthorized").await;
    refusing(&site, "denied", 403, "Forbidden").await;
    let run = ["run", "vm-stop", "-i", "vm=demo"];
    answers(&site, 6, &run, &["~/.kube/config does not exist", "Give --kubeconfig FILE"]).await;
    let rows: [(&[&str], &[&str]); 6] = [
        (&["--kubeconfig", "nowhere"], &["kubeconfig nowhere", "No such file"]),
        (&["--kubeconfig", "broken"], &["kubeconfig broken", "YAML"]),
        (&["--kubeconfig", "own", "--context", "other"], &["has no context `other`", "it has: rehearsal"]),
        (&["--kubeconfig", "away"], &["http://127.0.0.1:1", "refused", "Is the server up"]),
        (
            &["--kubeconfig", "expired"],
            &["the cluster http://127.0.0.1:", "Unauthorized", "renew the kubeconfig"],
        ),
        (&["--kubeconfig", "denied"], &["the cluster http://127.0.0.1:", "Forbidden", "(RBAC)"]),
    ];
    for (flags, parts) in rows {
        answers(&site, 6, &[&run[..], flags].concat(), parts).await;
    }
    assert_eq!(site.expect(0, &["runs", "--output", "json"]).await.json(), serde_json::json!([]));
}

#[tokio::test]
async fn a_workflow_or_an_input_that_is_not_there_is_told_from_one_with_mistakes() {
    let site = Site::new();
    site.write("workflows/broken.toml", "schema = 1\nname = \"broken\n");
    site.write(
        "workflows/odd.toml",
        "schema = 1\nname = \"odd\"\ntitle = \"t\"\n[steps.a]\nuses = \"slep\"\n",
    );
    answers(&site, 2, &["run", "vm-stp"], &["no workflow `vm-stp`", "did you mean `vm-stop`?"]).await;
    answers(&site, 2, &["plan", "something-else"], &["no workflow `something-else`", "windrow workflows"])
        .await;
    answers(&site, 2, &["run", "broken"], &["`broken` has mistakes", "broken.toml:2", "windrow validate"])
        .await;
    answers(&site, 2, &["graph", "odd"], &["`odd` has mistakes", "odd.toml:5", "slep"]).await;
    answers(&site, 2, &["run", "strict"], &["`name` is missing: a name", "`count` is missing"]).await;
    answers(&site, 2, &["rehearse", "good", "--case", "x"], &["good has no rehearsals"]).await;
    answers(&site, 2, &["rehearse", "vm-stop", "--case", "x"], &["vm-stop has these rehearsals: good"]).await;
    answers(&site, 2, &["sim", "--fault", "no-apci"], &["no fault `no-apci`", "did you mean `no-acpi`?"])
        .await;
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_used_is_named_with_the_reason() {
    let site = Site::new();
    site.write("file", "");
    answers(&site, 6, &["runs", "--state", "file/state"], &["file/state cannot be used", "Not a directory"])
        .await;
    answers(&site, 6, &["store", "check", "--state", "nowhere"], &["no store in nowhere", "--state"]).await;
    assert!(!site.path("nowhere").exists(), "looking makes nothing");
    answers(&site, 6, &["store", "import", "nowhere"], &["nowhere cannot be imported", "No such file"]).await;

    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let pid = owner.pid().as_raw_nonzero().to_string();
    answers(&site, 6, &["store", "check"], &["in use by process", &pid, "Wait until it ends"]).await;
    // It hangs: nobody is let in, and nobody waits for ever.
    std::fs::remove_file(site.path("state/windrow.sock")).unwrap();
    answers(&site, 6, &["runs"], &["state is in use by process", &pid]).await;
    owner.signal(Signal::KILL);
    owner.ended().await;
    site.write("go", "");
    site.expect(0, &["resume"]).await;
}

#[tokio::test]
async fn what_a_run_does_not_take_is_refused_with_the_run_and_the_reason() {
    let site = Site::new();
    site.expect(0, &["run", "good"]).await;
    let good = site.newest("good").await;
    site.expect(5, &["run", "asks"]).await;
    let asks = site.newest("asks").await;
    site.expect(1, &["run", "bad"]).await;
    let bad = site.newest("bad").await;
    let over = [good.as_str(), "the run ended at"];
    for args in
        [&["resume", &good] as &[&str], &["cancel", &good], &["decide", &good, "retry"], &["pause", &good]]
    {
        answers(&site, 3, args, &over).await;
    }
    answers(&site, 3, &["retry", &good], &[&good, "succeeded", "nothing to retry"]).await;
    answers(&site, 3, &["rollback", &bad], &[&bad, "nothing that could be undone"]).await;
    answers(&site, 3, &["decide", &asks, "retry"], &[&asks, "`retry` is not an answer", "approve"]).await;
    answers(&site, 2, &["decide", &asks, "perhaps"], &["an answer is done, retry"]).await;
    answers(&site, 2, &["decide", &asks, "nowhere[", "done"], &["`nowhere[` is not a step"]).await;
    answers(&site, 3, &["retry", &asks], &[&asks, "not over yet"]).await;
    answers(&site, 3, &["unpause", &asks], &[&asks, "not paused"]).await;
    answers(&site, 2, &["show", "nope"], &["no run is called `nope`", "windrow runs"]).await;
    answers(&site, 2, &["show", &asks[..4]], &["could be any of", &asks, &good]).await;
    answers(&site, 2, &["debts", "close", "x", "--reason", "y"], &["`x` is not RUN/NUMBER"]).await;
    answers(
        &site,
        3,
        &["debts", "close", &format!("{asks}/7"), "--reason", "y"],
        &[&asks, "no open debt number 7"],
    )
    .await;
    answers(&site, 2, &["locks", "break", "x", "--reason", "y"], &["nobody holds the lock `x`"]).await;
    answers(&site, 2, &["runs", "--state-is", "Succeded"], &["Succeded", "Succeeded"]).await;
    let mine = site.expect(0, &["runs", "--state-is", "held", "--output", "json"]).await.json();
    assert_eq!(mine[0]["run"], asks);

    let zh = said(site.command(&["retry", &good]).env("LANG", "zh_CN.UTF-8")).await;
    assert!(zh.err.contains("运行在当前状态下不接受此命令"), "{zh:?}");
}
