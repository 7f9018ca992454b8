//! The wall clock of the machine jumps by two hours under a living process (E7).

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use windrow::time::Timestamp;
use windrow::time::wall_now;

use super::site::Site;
use crate::support::preloaded;

const TWO_HOURS: Duration = Duration::from_hours(2);
/// The slowest machine does what is to be done here in less.
const A_WHILE: Duration = Duration::from_mins(30);

/// What the machine is set by, in seconds.
fn jump(site: &Site, seconds: i64) {
    // Whoever reads it meanwhile must not find it empty.
    site.write("jump.new", &seconds.to_string());
    std::fs::rename(site.path("jump.new"), site.path("jump")).unwrap();
}

fn jumping(site: &Site, shim: &Path, args: &[&str]) -> tokio::process::Command {
    let mut command = site.command(args);
    command.env("LD_PRELOAD", shim).env("WINDROW_JUMP", site.path("jump"));
    command
}

fn moment(view: &Value, key: &str) -> Timestamp {
    view[key].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_wall_clock_that_jumps_under_a_living_process_moves_no_deadline() {
    let site = Site::new();
    let shim = preloaded(&site.path(""), include_str!("wall_clock.c"), "a wall clock that jumps");
    let Some(shim) = shim else { return };
    // The shim works: what starts now lives two hours from now.
    jump(&site, 7200);
    let ahead = jumping(&site, &shim, &["run", "good", "--state", "ahead"]).output().await.unwrap();
    assert!(ahead.status.success(), "{ahead:?}");
    let runs = site.expect(0, &["runs", "--state", "ahead", "--output", "json"]).await.json();
    let created = Timestamp::from_millis(runs[0]["created_at"].as_i64().unwrap());
    assert!(created.since(wall_now()) + A_WHILE > TWO_HOURS, "{runs:#}");

    jump(&site, 0);
    let args = ["run", "limited", "-i", "duration=90m", "-i", "limit=1h"];
    let owner = site.stay_as(&mut jumping(&site, &shim, &args)).await;
    let patient = site.newest("limited").await;
    let begun = moment(&site.show(&patient).await, "created_at");
    for seconds in [7200, -7200] {
        jump(&site, seconds);
        // Executed by the same process: its own time goes on, and a second is a second.
        for (limit, code, failure) in [("1h", 0, Value::Null), ("1s", 1, "step-timeout".into())] {
            let limit = format!("limit={limit}");
            site.expect(code, &["run", "limited", "-i", "duration=2s", "-i", &limit]).await;
            let view = site.show(&site.newest("limited").await).await;
            assert_eq!(view["failure"]["code"], failure, "{view:#}");
            let (created, finished) = (moment(&view, "created_at"), moment(&view, "finished_at"));
            assert!((begun..begun + A_WHILE).contains(&created), "{view:#}");
            assert!((Duration::from_secs(1)..A_WHILE).contains(&finished.since(created)), "{view:#}");
        }
        // The first one sleeps, and its hour is not over.
        let view = site.show(&patient).await;
        assert!(view["finished_at"].is_null(), "{view:#}");
    }
    site.expect(0, &["cancel", &patient]).await;
    assert_eq!(owner.ended().await.0, 9);
}
