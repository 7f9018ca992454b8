//! The command line, on the real binary: exit codes, JSON, languages, other processes, signals, secrets.

mod clusters;
mod codes;
mod files;
mod foreground;
mod locks;
mod programs;
mod secrets;
mod sim;
mod site;
