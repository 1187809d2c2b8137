mod fill;
mod languages;
mod mutants;
pub mod pages;
