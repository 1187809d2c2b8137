//! Flags more for Chromium's command line: how they are given, and which may be.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

const ID: &str = "chromium_flags";

/// Flags the agent needs for itself.
const RESERVED: [&str; 6] = [
    "remote-debugging-port",
    "remote-debugging-pipe",
    "remote-debugging-address",
    "remote-allow-origins",
    "user-data-dir",
    "disk-cache-dir",
];

/// Names the environment variable that does instead of the option.
pub trait Variable {
    const NAME: &'static str;
}

/// The option `--chromium-flag`, given once for each flag. Its variable holds all of them with spaces between, so that a flag with a
/// space in it can only be given as an option.
#[derive(Debug, Clone)]
pub struct ChromiumFlags<V> {
    flags: Vec<String>,
    variable: PhantomData<V>,
}

impl<V> ChromiumFlags<V> {
    /// The flags, or what is wrong with each bad one.
    pub fn check(&self) -> Result<&[String], Vec<String>> {
        let wrong = self.flags.iter().filter_map(|flag| check(flag).err());
        let wrong: Vec<String> = wrong.collect();
        if wrong.is_empty() {
            Ok(&self.flags)
        } else {
            Err(wrong)
        }
    }
}

impl<V: Variable> Args for ChromiumFlags<V> {
    fn augment_args(command: Command) -> Command {
        command.arg(
            Arg::new(ID)
                .long("chromium-flag")
                .env(V::NAME)
                .action(ArgAction::Append)
                .allow_hyphen_values(true)
                .value_name("FLAG")
                .help(
                    "A flag more for Chromium, such as --lang=de; may be given many times \
                     (the variable: flags with spaces between)",
                ),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<V: Variable> FromArgMatches for ChromiumFlags<V> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches.get_many::<String>(ID).into_iter().flatten();
        let from_variable = matches.value_source(ID) == Some(ValueSource::EnvVariable);
        let flags = if from_variable {
            given
                .flat_map(|all| all.split_whitespace())
                .map(str::to_owned)
                .collect()
        } else {
            given.filter(|flag| !flag.is_empty()).cloned().collect()
        };
        Ok(Self {
            flags,
            variable: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn check(flag: &str) -> Result<(), String> {
    let Some(name) = flag.strip_prefix("--") else {
        return Err(format!("`{flag}` does not begin with --"));
    };
    let name = name.split('=').next().unwrap_or(name);
    if name.is_empty() || flag.contains('\0') {
        return Err(format!("`{flag}` is not a flag"));
    }
    if RESERVED.contains(&name) {
        return Err(format!("--{name} is set by the agent itself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for every test run, and of the shape of two flags.
    struct Set;

    impl Variable for Set {
        const NAME: &'static str = "CARGO_PKG_DESCRIPTION";
    }

    struct Unset;

    impl Variable for Unset {
        const NAME: &'static str = "CHROMIUM_FLAGS_THAT_ARE_NOT_SET";
    }

    fn flags<V: Variable>(arguments: &[&str]) -> ChromiumFlags<V> {
        let command = ChromiumFlags::<V>::augment_args(Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        ChromiumFlags::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn an_option_is_one_flag_whatever_is_in_it() {
        let given = flags::<Unset>(&[
            "--chromium-flag=--user-agent=My Agent",
            "--chromium-flag",
            "--lang=de",
        ]);
        assert_eq!(
            given.check().unwrap(),
            ["--user-agent=My Agent", "--lang=de"]
        );
        assert!(flags::<Unset>(&[]).check().unwrap().is_empty());
    }

    #[test]
    fn the_variable_holds_many_and_the_option_wins_over_it() {
        let words = flags::<Set>(&[]).flags;
        assert!(words.len() > 1 && words.iter().all(|word| !word.contains(' ')));
        let given = flags::<Set>(&["--chromium-flag=--lang=de"]);
        assert_eq!(given.check().unwrap(), ["--lang=de"]);
    }

    #[test]
    fn each_flag_that_cannot_be_is_told() {
        let given = flags::<Unset>(&[
            "--chromium-flag=lang=de",
            "--chromium-flag=--",
            "--chromium-flag=--remote-debugging-port=1",
            "--chromium-flag=--lang=de",
        ]);
        assert_eq!(
            given.check().unwrap_err(),
            [
                "`lang=de` does not begin with --",
                "`--` is not a flag",
                "--remote-debugging-port is set by the agent itself",
            ]
        );
    }
}
