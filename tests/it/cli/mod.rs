//! The command line, on the real binary: exit codes, JSON, languages, other processes, signals, secrets.

mod clusters;
mod codes;
mod explain;
mod files;
mod foreground;
mod handover;
mod locks;
mod mistakes;
mod plan;
mod programs;
mod secrets;
mod show;
mod sim;
mod site;
mod surface;
mod terminal;
