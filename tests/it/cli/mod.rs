//! The command line, on the real binary: exit codes, JSON, languages, other processes, signals, secrets.

mod bundle;
mod children;
mod clusters;
mod codes;
mod diagnose;
mod explain;
mod files;
mod foreground;
mod handover;
mod locks;
mod mistakes;
mod people;
mod plan;
mod programs;
mod retention;
mod secrets;
mod show;
mod sim;
mod site;
mod surface;
mod terminal;
mod wall_clock;
