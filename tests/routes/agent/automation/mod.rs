mod execute;
mod executors;
