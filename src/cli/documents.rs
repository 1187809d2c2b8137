//! Man pages and completions, from the definition of the command line.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, CommandFactory};
use clap_complete::{Generator, Shell};

use super::Cli;

/// Options of `berth completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell that the completions are for
    pub shell: Shell,
}

/// Options of `berth man-pages`.
#[derive(Debug, Args)]
pub struct ManPages {
    /// Directory that the pages are written to, which exists
    pub directory: PathBuf,
}

impl Completions {
    /// Prints the completions of a shell.
    ///
    /// # Errors
    /// Fails if they cannot be written.
    pub fn print(&self) -> io::Result<()> {
        let mut command = Cli::command();
        command.set_bin_name("berth");
        command.build();
        let mut script = Vec::new();
        self.shell.try_generate(&command, &mut script)?;
        let mut out = io::stdout().lock();
        out.write_all(&script)?;
        out.flush()
    }
}

impl ManPages {
    /// Writes a page for each command: `berth.1`, `berth-agent.1` and so on.
    ///
    /// # Errors
    /// Fails if a page cannot be written.
    pub fn write(&self) -> io::Result<()> {
        clap_mangen::generate_to(Cli::command(), &self.directory)
    }
}
