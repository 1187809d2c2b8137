//! Mutants of the pages: no value is in a field that it does not belong into.

use reqwest::StatusCode;

use super::pages::{FormSite, report, variants, wrong_fields};
use crate::support::{
    agent::Start,
    page::Page,
    random::{Random, setting},
};

/// The number of mutants, unless the variable sets it.
const MUTANTS: usize = 120;
const MUTANTS_VARIABLE: &str = "BERTH_TEST_FILL_MUTANTS";
/// The default seed of the generator.
const SEED: u64 = 18;
const SEED_VARIABLE: &str = "BERTH_TEST_FILL_SEED";

#[tokio::test]
async fn mutants_of_pages_get_no_value_in_a_wrong_place() {
    let count = setting(MUTANTS_VARIABLE, MUTANTS);
    let seed = setting(SEED_VARIABLE, SEED);
    let mut random = Random::new(seed, 0);
    let variants = variants();
    let site = FormSite::serve(&variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    let (mut filled, mut refused) = (0, 0);
    for index in 0..count {
        let variant = &variants[index % variants.len()];
        let url = format!("{}?seed={}", site.url(variant), random.below(1 << 30));
        page.go_to(&url).await;
        let request = variant.request();
        let fill = agent.post("/credentials/fill").json(&request);
        let (status, response) = agent.answer(fill).await;
        let mut fields = report(&mut page).await;
        // No field is right in a frame or a form that is refused.
        let outcomes = &variant.expected["outcomes"];
        for field in &mut fields {
            let name = field.right.as_deref().unwrap_or_default();
            if outcomes[name] == "refused_origin" || outcomes[name] == "not_found" {
                field.right = None;
            }
        }
        let wrong = wrong_fields(&fields, &request);
        assert!(wrong.is_empty(), "{url}: {wrong:?}: {response}");
        match status {
            StatusCode::OK => {
                let outcomes = response["fields"].as_array().unwrap().iter();
                filled += outcomes
                    .filter(|field| field["outcome"] == "filled")
                    .count();
            }
            StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN => refused += 1,
            status => panic!("{url}: {status}: {response}"),
        }
    }
    println!("{count} mutants with seed {seed}: {filled} fields filled, {refused} pages refused");
    // Mutants of which nothing is filled would show nothing.
    assert!(filled > count / 2, "{filled} of {count}");
    agent.stop().await;
}
