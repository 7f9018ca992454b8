//! `windrow sim`.

use std::fs::File;
use std::fs::Permissions;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::cli::args::SPEED_MAX;
use crate::cli::args::Sim;
use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::definition::suggest::did_you_mean;
use crate::service::codes;
use crate::sim;
use crate::sim::Fault;
use crate::time::SystemClock;

pub(super) async fn sim(what: Sim, printer: &Printer) -> Result<u8, CommandError> {
    let known = sim::list_faults();
    if what.list_faults {
        if printer.is_json() {
            let row =
                |f: &Fault| serde_json::json!({ "name": f.name, "about": f.about, "about_zh": f.about_zh });
            printer.json(&known.iter().map(row).collect::<Vec<_>>());
        } else {
            for fault in &known {
                let about = printer.pick(fault.about, fault.about_zh);
                printer.data(format_args!("{:<24} {about}", fault.name));
            }
        }
        return Ok(0);
    }
    if !(what.speed >= 1.0 && what.speed <= SPEED_MAX) {
        return Err(CommandError::usage(codes::BAD_SPEED, format!("--speed is 1 to {SPEED_MAX}")));
    }
    let options = options(&what, &known)?;
    let clock = Arc::new(SystemClock::at_speed(what.speed));
    let cluster = sim::Cluster::start(options, clock)
        .map_err(|error| CommandError::usage(codes::REHEARSAL_SETUP, with_sources(&error)))?;
    let listening =
        |error| CommandError::unusable(codes::LISTEN, format!("cannot listen on {}: {error}", what.listen));
    let listener = TcpListener::bind(what.listen).await.map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    if let Some(file) = &what.kubeconfig_out {
        write_whole(file, &sim::Cluster::kubeconfig(address)).map_err(|error| {
            CommandError::unusable(codes::WRITE, format!("cannot write {}: {error}", file.display()))
        })?;
    }
    printer.data(format_args!("http://{address}"));
    welcome(&what, printer);
    let mut code = 0;
    cluster.serve(listener, async { code = crate::cli::follow::stopped().await }).await;
    Ok(code)
}

/// That it serves now, what to try, and how it ends.
fn welcome(what: &Sim, printer: &Printer) {
    let try_it = match &what.kubeconfig_out {
        Some(file) => format!("export KUBECONFIG={}; kubectl get vm,vmi", file.display()),
        None => "windrow sim --kubeconfig-out FILE".to_owned(),
    };
    printer.note(format_args!(
        "{} {try_it}",
        printer.pick(
            "the rehearsal cluster is served there until Ctrl-C; in another terminal:",
            "演练集群正在上述地址提供服务，Ctrl-C 结束；在另一个终端里："
        )
    ));
}

/// Only the user reads the file, and a reader that waits for it never sees half of it.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let part = file.with_extension("part");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(&part)?;
    // The mode counts for a new file only.
    opened.set_permissions(Permissions::from_mode(0o600))?;
    opened.write_all(text.as_bytes())?;
    std::fs::rename(part, file)
}

fn options(what: &Sim, known: &[Fault]) -> Result<sim::Options, CommandError> {
    let fault = |name: &String| {
        let found = known.iter().find(|fault| fault.name == name).copied();
        found.ok_or_else(|| {
            let hint = did_you_mean(name, known.iter().map(|fault| fault.name));
            let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
            CommandError::usage(codes::UNKNOWN_FAULT, format!("there is no fault `{name}`{hint}"))
        })
    };
    let fixture = |file: &PathBuf| {
        std::fs::read_to_string(file).map_err(|error| {
            CommandError::usage(codes::FIXTURE, format!("cannot read {}: {error}", file.display()))
        })
    };
    Ok(sim::Options {
        seed: what.seed,
        faults: what.fault.iter().map(fault).collect::<Result<_, _>>()?,
        already: vec![],
        fixtures: what.fixture.iter().map(fixture).collect::<Result<_, _>>()?,
        empty: what.empty,
        audit: what.audit.clone(),
    })
}

/// An error with what is behind it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
