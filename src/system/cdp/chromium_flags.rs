//! Additional flags of Chromium's command line: the option, and which flags are permitted.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

/// The argument id of the option.
const ID: &str = "chromium_flags";

/// The flags that the agent sets itself.
const RESERVED: [&str; 6] = [
    "remote-debugging-port",
    "remote-debugging-pipe",
    "remote-debugging-address",
    "remote-allow-origins",
    "user-data-dir",
    "disk-cache-dir",
];

/// The environment variable that is an alternative to the option.
pub trait Variable {
    const NAME: &'static str;
}

/// The option `--chromium-flag`, given once for each flag. The variable contains all flags,
/// separated by spaces, so a flag that contains a space can only be given as an option.
#[derive(Debug, Clone)]
pub struct ChromiumFlags<V> {
    flags: Vec<String>,
    variable: PhantomData<V>,
}

impl<V> ChromiumFlags<V> {
    /// Returns the flags, or the error of each invalid one.
    pub fn check(&self) -> Result<&[String], Vec<String>> {
        let errors = self.flags.iter().filter_map(|flag| check(flag).err());
        let errors: Vec<String> = errors.collect();
        if errors.is_empty() {
            Ok(&self.flags)
        } else {
            Err(errors)
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
                    "Additional flag for Chromium, such as --lang=de; repeatable \
                     (variable: flags separated by spaces)",
                ),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<V: Variable> FromArgMatches for ChromiumFlags<V> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = matches.get_many::<String>(ID).into_iter().flatten();
        let from_variable = matches.value_source(ID) == Some(ValueSource::EnvVariable);
        let flags = if from_variable {
            values
                .flat_map(|value| value.split_whitespace())
                .map(str::to_owned)
                .collect()
        } else {
            values.filter(|flag| !flag.is_empty()).cloned().collect()
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
        return Err(format!("`{flag}` does not start with --"));
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

    /// A variable that Cargo sets in every test run, to several words.
    struct SetVariable;

    impl Variable for SetVariable {
        const NAME: &'static str = "CARGO_PKG_DESCRIPTION";
    }

    struct UnsetVariable;

    impl Variable for UnsetVariable {
        const NAME: &'static str = "CHROMIUM_FLAGS_THAT_ARE_NOT_SET";
    }

    fn flags<V: Variable>(arguments: &[&str]) -> ChromiumFlags<V> {
        let command = ChromiumFlags::<V>::augment_args(Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        ChromiumFlags::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn option_is_one_flag_even_with_spaces() {
        let given = flags::<UnsetVariable>(&[
            "--chromium-flag=--user-agent=My Agent",
            "--chromium-flag",
            "--lang=de",
        ]);
        assert_eq!(
            given.check().unwrap(),
            ["--user-agent=My Agent", "--lang=de"]
        );
        assert!(flags::<UnsetVariable>(&[]).check().unwrap().is_empty());
    }

    #[test]
    fn variable_holds_many_flags_and_option_overrides_it() {
        let words = flags::<SetVariable>(&[]).flags;
        assert!(words.len() > 1 && words.iter().all(|word| !word.contains(' ')));
        let given = flags::<SetVariable>(&["--chromium-flag=--lang=de"]);
        assert_eq!(given.check().unwrap(), ["--lang=de"]);
    }

    #[test]
    fn check_reports_each_invalid_flag() {
        let given = flags::<UnsetVariable>(&[
            "--chromium-flag=lang=de",
            "--chromium-flag=--",
            "--chromium-flag=--remote-debugging-port=1",
            "--chromium-flag=--lang=de",
        ]);
        assert_eq!(
            given.check().unwrap_err(),
            [
                "`lang=de` does not start with --",
                "`--` is not a flag",
                "--remote-debugging-port is set by the agent itself",
            ]
        );
    }
}
