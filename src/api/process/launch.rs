//! Requests that start programs.

use std::{collections::BTreeMap, fmt, time::Duration};

use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Value, ValueKind, ValuePointerRef,
    take_cf_content,
};
use utoipa::ToSchema;

use crate::api::{
    field::{Fields, add, from_text, whole_number},
    fs::{Account, GuestPath, MAX_PATH},
};

/// Arguments, and also variables, at most.
pub const MAX_STRINGS: usize = 4096;
/// Bytes of the longest argument or variable that the kernel accepts.
pub const MAX_STRING: usize = (128 << 10) - 1;
/// Bytes of command, arguments and variables together, at most.
pub const MAX_STRINGS_BYTES: usize = 1 << 20;
/// The longest timeout of a process, in seconds: one day.
const MAX_TIMEOUT: u32 = 86_400;
const SIDE: std::ops::RangeInclusive<u32> = 1..=65_535;

/// A program to run.
#[derive(Debug, ToSchema)]
#[schema(as = ExecRequest)]
pub struct Launch {
    /// Path of the program, or a name that is searched for in `PATH`. It is run without a shell.
    /// Command, arguments and variables are limited to 1 MiB in total.
    #[schema(min_length = 1, max_length = 4095, example = "ls")]
    pub command: String,
    /// Up to 4096 arguments of up to 131071 bytes each.
    #[schema(value_type = Option<Vec<String>>, max_items = 4096, example = json!(["-l", "/"]))]
    pub args: Vec<String>,
    /// Working directory, an absolute path. By default the user's home directory, or `/` if that is
    /// not accessible.
    #[schema(value_type = Option<String>, max_length = 4095)]
    pub cwd: Option<GuestPath>,
    /// Up to 4096 environment variables, which extend or override the default ones.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub env: Variables,
    /// Name or number of the user to run as. By default a user that only the session has, or the
    /// agent's user where client processes are not isolated.
    #[schema(value_type = Option<String>, max_length = 32)]
    pub as_user: Option<Account>,
    /// Run as root. Mutually exclusive with `as_user`.
    #[schema(value_type = Option<bool>, default = false)]
    pub as_root: bool,
    /// Timeout in seconds, after which the process gets SIGTERM and 2 s later SIGKILL. By default
    /// there is none.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    pub timeout_sec: Option<ProcessTimeout>,
}

/// A process to start.
#[derive(Debug, ToSchema)]
pub struct SpawnRequest {
    #[schema(inline)]
    #[serde(flatten)]
    pub launch: Launch,
    /// Allocate a terminal, which is the process's standard input, output and error.
    #[schema(value_type = Option<bool>, default = false)]
    pub allocate_tty: bool,
    /// Number of rows of the terminal.
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 65_535, default = 24)]
    pub rows: TerminalSide,
    /// Number of columns of the terminal.
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 65_535, default = 80)]
    pub cols: TerminalSide,
}

/// Environment variables. Values may be secrets, so `Debug` omits them.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.0.iter();
        variables.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The timeout of a process: 1–86400 s.
#[derive(Debug, Clone, Copy)]
pub struct ProcessTimeout(u32);

impl From<ProcessTimeout> for Duration {
    fn from(timeout: ProcessTimeout) -> Self {
        Duration::from_secs(timeout.0.into())
    }
}

impl<E: DeserializeError> Deserr<E> for ProcessTimeout {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, 1..=MAX_TIMEOUT).map(ProcessTimeout)
    }
}

/// A number of rows or columns of a terminal: 1–65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSide(u16);

impl TerminalSide {
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for TerminalSide {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let side = whole_number(value, location, SIDE)?;
        // `SIDE` ends at u16::MAX.
        Ok(TerminalSide(u16::try_from(side).unwrap_or(u16::MAX)))
    }
}

/// Returns the text if the kernel accepts it as an argument.
fn check_text(text: String, max_bytes: usize) -> Result<String, String> {
    if text.contains('\0') {
        Err("must not contain NUL".to_owned())
    } else if text.len() > max_bytes {
        Err(format!("must have at most {max_bytes} bytes"))
    } else {
        Ok(text)
    }
}

/// An argument of a program.
struct Argument(String);

impl<E: DeserializeError> Deserr<E> for Argument {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| {
            check_text(text, MAX_STRING).map(Argument)
        })
    }
}

/// The path or name of a program.
struct Command(String);

impl<E: DeserializeError> Deserr<E> for Command {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| {
            if text.is_empty() {
                Err("must not be empty".to_owned())
            } else {
                check_text(text, MAX_PATH).map(Command)
            }
        })
    }
}

/// Checks a variable. Messages omit the value, which may be a secret.
fn check_variable(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        Err("name must not be empty or contain = or NUL".to_owned())
    } else if value.contains('\0') {
        Err("must not contain NUL".to_owned())
    } else if name.len() + value.len() + 1 > MAX_STRING {
        Err(format!(
            "must have at most {MAX_STRING} bytes including its name"
        ))
    } else {
        Ok(())
    }
}

// Not derived: deserr's maps silently drop entries of the wrong kind.
impl<E: DeserializeError> Deserr<E> for Variables {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let Value::Map(map) = value else {
            let accepted = &[ValueKind::Map];
            let kind = ErrorKind::IncorrectValueKind {
                actual: value,
                accepted,
            };
            return Err(take_cf_content(E::error(None, kind, location)));
        };
        if map.len() > MAX_STRINGS {
            return Err(add(
                None,
                format!("must have at most {MAX_STRINGS} entries"),
                location,
            ));
        }
        let (mut variables, mut errors) = (BTreeMap::new(), None);
        for (name, value) in map.into_iter() {
            let location = location.push_key(&name);
            let checked = from_text(value.into_value(), location, |value| {
                check_variable(&name, &value).map(|()| value)
            });
            match checked {
                Ok(value) => {
                    variables.insert(name, value);
                }
                Err(other) => errors = Some(take_cf_content(E::merge(errors, other, location))),
            }
        }
        errors.map_or(Ok(Variables(variables)), Err)
    }
}

impl Launch {
    fn read<M: Map, E: DeserializeError>(fields: &mut Fields<'_, M, E>) -> Option<Self> {
        let command: Option<Command> = fields.required("command");
        let args: Vec<Argument> = fields.optional("args").unwrap_or_default();
        let cwd = fields.optional("cwd");
        let env: Variables = fields.optional("env").unwrap_or_default();
        let as_user = fields.optional("as_user");
        let as_root: bool = fields.optional("as_root").unwrap_or_default();
        let timeout_sec = fields.optional("timeout_sec");
        if args.len() > MAX_STRINGS {
            fields.reject("args", format!("must have at most {MAX_STRINGS} entries"));
        }
        let env_bytes: usize = env
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let args_bytes: usize = args.iter().map(|arg| arg.0.len()).sum();
        if env_bytes + args_bytes > MAX_STRINGS_BYTES {
            let field = if args_bytes > env_bytes {
                "args"
            } else {
                "env"
            };
            let message = format!(
                "arguments and variables must have at most {MAX_STRINGS_BYTES} bytes in total"
            );
            fields.reject(field, message);
        }
        if as_root && as_user.is_some() {
            fields.reject("as_root", "must not be combined with as_user");
        }
        Some(Launch {
            command: command?.0,
            args: args.into_iter().map(|arg| arg.0).collect(),
            cwd,
            env,
            as_user,
            as_root,
            timeout_sec,
        })
    }
}

impl<E: DeserializeError> Deserr<E> for Launch {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let launch = Launch::read(&mut fields);
        fields.finish(launch)
    }
}

impl<E: DeserializeError> Deserr<E> for SpawnRequest {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let launch = Launch::read(&mut fields);
        let allocate_tty = fields.optional("allocate_tty").unwrap_or_default();
        let rows = fields.optional("rows").unwrap_or(TerminalSide(24));
        let cols = fields.optional("cols").unwrap_or(TerminalSide(80));
        fields.finish(launch.map(|launch| SpawnRequest {
            launch,
            allocate_tty,
            rows,
            cols,
        }))
    }
}
