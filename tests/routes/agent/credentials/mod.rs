mod fill;
mod languages;
mod mutants;
mod pages;
