//! Processes, on the wire.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use base64::{Engine, display::Base64Display, engine::general_purpose::STANDARD};
use bytes::Bytes;
use deserr::{
    DeserializeError, Deserr, ErrorKind, IntoValue, Map, Value, ValueKind, ValuePointerRef,
    take_cf_content,
};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::{
    field::{Fields, add, from_text, whole_number},
    fs::{Account, GuestPath, MAX_PATH},
    ids::ProcessId,
    time::Timestamp,
};

/// The most arguments, and the most variables.
pub const MAX_STRINGS: usize = 4096;
/// The longest argument or variable: the kernel takes no longer one.
pub const MAX_STRING: usize = (128 << 10) - 1;
/// Command, arguments and variables together.
pub const MAX_STRINGS_BYTES: usize = 1 << 20;
/// What may be written to a standard input at once.
pub const MAX_STDIN: usize = 1 << 20;
/// The longest time that can be given to a process, in seconds: a day.
const MAX_TIMEOUT: u32 = 86_400;
const SIDE: std::ops::RangeInclusive<u32> = 1..=65_535;

/// A program, and how it is run.
#[derive(Debug, ToSchema)]
#[schema(as = ExecRequest)]
pub struct Launch {
    /// The program: a path, or a name to be looked up in `PATH`. No shell is between. Command, arguments and variables may
    /// have 1 MiB together.
    #[schema(min_length = 1, max_length = 4095, example = "ls")]
    pub command: String,
    /// Its arguments: 4096 at most, each of up to 131071 bytes.
    #[schema(value_type = Option<Vec<String>>, max_items = 4096, example = json!(["-l", "/"]))]
    pub args: Vec<String>,
    /// An absolute path; the user's home directory where nothing is said, `/` where that cannot be entered.
    #[schema(value_type = Option<String>, max_length = 4095)]
    pub cwd: Option<GuestPath>,
    /// Variables beside those that are always set, or in their place: 4096 at most.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub env: Variables,
    /// The user to run as, by name or number; who the agent runs as where nothing is said.
    #[schema(value_type = Option<String>, max_length = 32)]
    pub as_user: Option<Account>,
    /// Run as root. Not together with `as_user`.
    #[schema(value_type = Option<bool>, default = false)]
    pub as_root: bool,
    /// Seconds after which it is ended: SIGTERM, and two seconds later SIGKILL. For ever where nothing is said.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86_400)]
    pub timeout_sec: Option<TimeoutSec>,
}

/// A process to be started.
#[derive(Debug, ToSchema)]
pub struct SpawnRequest {
    #[schema(inline)]
    #[serde(flatten)]
    pub launch: Launch,
    /// Give it a terminal, which is its standard input, output and error at once.
    #[schema(value_type = Option<bool>, default = false)]
    pub allocate_tty: bool,
    /// Lines of the terminal.
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 65_535, default = 24)]
    pub rows: Side,
    /// Columns of the terminal.
    #[schema(value_type = Option<u16>, minimum = 1, maximum = 65_535, default = 80)]
    pub cols: Side,
}

/// Environment variables. Values may be secrets, which nothing prints.
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

/// 1–86400 seconds.
#[derive(Debug, Clone, Copy)]
pub struct TimeoutSec(u32);

impl From<TimeoutSec> for Duration {
    fn from(timeout: TimeoutSec) -> Self {
        Duration::from_secs(timeout.0.into())
    }
}

impl<E: DeserializeError> Deserr<E> for TimeoutSec {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, 1..=MAX_TIMEOUT).map(TimeoutSec)
    }
}

/// Lines or columns: 1–65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side(u16);

impl Side {
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for Side {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let side = whole_number(value, location, SIDE)?;
        // It is within the bounds.
        Ok(Side(u16::try_from(side).unwrap_or(u16::MAX)))
    }
}

/// `text`, where the kernel takes it from one process to the next.
fn passable(text: String, most: usize) -> Result<String, String> {
    if text.contains('\0') {
        Err("must not contain a NUL character".to_owned())
    } else if text.len() > most {
        Err(format!("may have {most} bytes at most"))
    } else {
        Ok(text)
    }
}

/// An argument.
struct Text(String);

impl<E: DeserializeError> Deserr<E> for Text {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| passable(text, MAX_STRING).map(Text))
    }
}

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
                passable(text, MAX_PATH).map(Command)
            }
        })
    }
}

/// What is wrong is said without the value, which may be a secret.
fn check_variable(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        Err("must have a name that is not empty and without `=` and NUL characters".to_owned())
    } else if value.contains('\0') {
        Err("must not contain a NUL character".to_owned())
    } else if name.len() + value.len() + 1 > MAX_STRING {
        Err(format!(
            "may have {MAX_STRING} bytes at most, the name included"
        ))
    } else {
        Ok(())
    }
}

// The library's own way with maps takes values that are wrong for values that are not there.
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
                format!("must be {MAX_STRINGS} at most"),
                location,
            ));
        }
        let (mut variables, mut errors) = (BTreeMap::new(), None);
        for (name, value) in map.into_iter() {
            let place = location.push_key(&name);
            let checked = from_text(value.into_value(), place, |value| {
                check_variable(&name, &value).map(|()| value)
            });
            match checked {
                Ok(value) => {
                    variables.insert(name, value);
                }
                Err(more) => errors = Some(take_cf_content(E::merge(errors, more, place))),
            }
        }
        errors.map_or(Ok(Variables(variables)), Err)
    }
}

impl Launch {
    fn read<M: Map, E: DeserializeError>(fields: &mut Fields<'_, M, E>) -> Option<Self> {
        let command: Option<Command> = fields.required("command");
        let args: Vec<Text> = fields.optional("args").unwrap_or_default();
        let cwd = fields.optional("cwd");
        let env: Variables = fields.optional("env").unwrap_or_default();
        let as_user = fields.optional("as_user");
        let as_root: bool = fields.optional("as_root").unwrap_or_default();
        let timeout_sec = fields.optional("timeout_sec");
        if args.len() > MAX_STRINGS {
            fields.reject("args", format!("must be {MAX_STRINGS} at most"));
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
            let what =
                format!("arguments and variables may have {MAX_STRINGS_BYTES} bytes at most");
            fields.reject(field, what);
        }
        if as_root && as_user.is_some() {
            fields.reject("as_root", "must not be given together with as_user");
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
        let rows = fields.optional("rows").unwrap_or(Side(24));
        let cols = fields.optional("cols").unwrap_or(Side(80));
        fields.finish(launch.map(|launch| SpawnRequest {
            launch,
            allocate_tty,
            rows,
            cols,
        }))
    }
}

/// A process that has been started.
#[derive(Debug, Serialize, ToSchema)]
pub struct Spawned {
    pub process_id: ProcessId,
    /// Its number on the browser's host.
    pub pid: u32,
    pub started_at: Timestamp,
}

/// What came of a program that was run to its end.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExecResponse {
    /// 124 where its time was over; 128 and the signal's number where a signal ended it.
    pub exit_code: i32,
    #[schema(value_type = String, format = Byte)]
    pub stdout_b64: Base64,
    #[schema(value_type = String, format = Byte)]
    pub stderr_b64: Base64,
    /// It wrote more to its standard output than is kept, of it or of all at once; `stdout_b64` is the beginning.
    pub stdout_truncated: bool,
    /// The same of its standard error.
    pub stderr_truncated: bool,
    /// Something that it has started could not be ended and still has an output open: what that writes from now on is missing.
    pub output_open: bool,
    pub duration_ms: u64,
}

/// How a process is doing.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProcessStatus {
    pub state: ProcessState,
    /// Once it has exited; 128 and the signal's number where a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Processor time of all processes of its session since status was last asked (the time in between being half a second at
    /// least), or since its start. 100 is one core.
    pub cpu_pct: f64,
    /// Resident memory of all processes of its session; what they share counts for each.
    pub mem_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    Running,
    Exited,
}

/// What to write to a standard input.
#[derive(Debug, Deserr, ToSchema)]
pub struct StdinRequest {
    /// Base64 of 1 MiB at most.
    #[deserr(default)]
    #[schema(value_type = String, format = Byte)]
    pub data_b64: Option<StdinData>,
    /// Nothing comes after this: the standard input is closed once all is written. On a terminal Ctrl-D is typed, which ends
    /// the input where it is at the beginning of a line; one that takes nothing just now gets it as soon as it does, before
    /// anything that is written later. Where not all was written, there is no end.
    #[deserr(default)]
    #[schema(value_type = Option<bool>, default = false)]
    pub end: Option<bool>,
}

/// Decoded, and within [`MAX_STDIN`].
pub struct StdinData(pub Bytes);

impl fmt::Debug for StdinData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl<E: DeserializeError> Deserr<E> for StdinData {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        from_text(value, location, |text| match STANDARD.decode(text) {
            Ok(data) if data.len() <= MAX_STDIN => Ok(StdinData(data.into())),
            Ok(_) => Err(format!("may have {MAX_STDIN} bytes at most")),
            Err(_) => Err("must be base64, with its padding".to_owned()),
        })
    }
}

/// What became of the data.
#[derive(Debug, Serialize, ToSchema)]
pub struct StdinWritten {
    /// Less than there was where the process did not read for five seconds, or closed its standard input meanwhile; the rest
    /// may be sent again.
    pub written_bytes: usize,
}

/// What to send to a process and all it has started.
#[derive(Debug, Deserr, ToSchema)]
pub struct KillRequest {
    #[deserr(default)]
    #[schema(default = "TERM")]
    pub signal: Option<KillSignal>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub enum KillSignal {
    #[default]
    #[deserr(rename = "TERM")]
    #[schema(rename = "TERM")]
    Term,
    #[deserr(rename = "KILL")]
    #[schema(rename = "KILL")]
    Kill,
    #[deserr(rename = "INT")]
    #[schema(rename = "INT")]
    Int,
    #[deserr(rename = "HUP")]
    #[schema(rename = "HUP")]
    Hup,
}

/// The new size of a terminal.
#[derive(Debug, Deserr, ToSchema)]
pub struct ResizeRequest {
    #[schema(value_type = u16, minimum = 1, maximum = 65_535)]
    pub rows: Side,
    #[schema(value_type = u16, minimum = 1, maximum = 65_535)]
    pub cols: Side,
}

/// One event of a process's output: output, its end, or a gap.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProcessEvent {
    /// With output: where it was written. A terminal's is all `stdout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<OutputStream>,
    /// With output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Byte)]
    pub data_b64: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<ProcessEventKind>,
    /// With `exit`, which is the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// With `exit`, where it is so: other programs still have the output open, and what they write from now on is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_open: Option<bool>,
    /// With `overflow`: how many events were dropped before they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

impl ProcessEvent {
    const NOTHING: Self = ProcessEvent {
        stream: None,
        data_b64: None,
        event: None,
        exit_code: None,
        output_open: None,
        missed: None,
    };

    #[must_use]
    pub fn output(stream: OutputStream, data: Bytes) -> Arc<Self> {
        Arc::new(ProcessEvent {
            stream: Some(stream),
            data_b64: Some(Base64(data)),
            ..Self::NOTHING
        })
    }

    #[must_use]
    pub fn exit(code: i32, output_open: bool) -> Arc<Self> {
        Arc::new(ProcessEvent {
            event: Some(ProcessEventKind::Exit),
            exit_code: Some(code),
            output_open: output_open.then_some(true),
            ..Self::NOTHING
        })
    }

    #[must_use]
    pub fn overflow(missed: u64) -> Arc<Self> {
        Arc::new(ProcessEvent {
            event: Some(ProcessEventKind::Overflow),
            missed: Some(missed),
            ..Self::NOTHING
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessEventKind {
    Exit,
    Overflow,
}

/// Bytes that are written in base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Base64(pub Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Without a copy of it in between.
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}
