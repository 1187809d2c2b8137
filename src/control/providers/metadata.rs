//! Metadata of providers, which do not have to be honest.

use super::{ItemSummary, ProviderError, ProviderVault};

/// The most vaults of a provider.
pub(super) const MAX_VAULTS: usize = 1000;
/// The most items of a provider.
pub(super) const MAX_ITEMS: usize = 10_000;
/// The most bytes of the metadata of all items of a provider, which stay in memory.
const MAX_LIST: usize = 16 << 20;
/// The most fields of an item.
pub(super) const MAX_FIELDS: usize = 256;
/// The most URLs of an item. Further ones are ignored.
const MAX_URLS: usize = 32;
/// The longest URL of an item in bytes. Longer ones are ignored.
const MAX_URL: usize = 2048;
/// The longest name in characters. The rest is cut.
const MAX_NAME: usize = 255;
/// The longest id in bytes.
const MAX_ID: usize = 64;

/// Returns the metadata of an item in a form that can be shown.
pub(super) fn summarize(
    vault: &ProviderVault,
    id: String,
    title: &str,
    urls: impl IntoIterator<Item = String>,
) -> ItemSummary {
    let title = display_name(title);
    ItemSummary {
        path: format!("{}/{title}", vault.name),
        id,
        title,
        vault_id: vault.id.clone(),
        vault_name: vault.name.clone(),
        urls: usable_urls(urls),
    }
}

/// Replaces control characters, and cuts a long name.
pub(super) fn display_name(name: &str) -> String {
    // Format characters such as the right-to-left override can disguise a name in a list.
    let is_invisible = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let characters = name.chars().take(MAX_NAME);
    characters
        .map(|c| if is_invisible(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Drops texts that cannot be URLs.
pub(super) fn usable_urls(urls: impl IntoIterator<Item = String>) -> Vec<String> {
    urls.into_iter()
        .map(|url| url.trim().to_owned())
        .filter(|url| !url.is_empty() && url.len() <= MAX_URL && !url.contains(char::is_control))
        .take(MAX_URLS)
        .collect()
}

/// Returns whether a text has the form of an id that a server has generated.
pub(super) fn is_generated_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Checks the number of something.
pub(super) fn check_count(
    count: usize,
    max: usize,
    items: &'static str,
) -> Result<(), ProviderError> {
    if count > max {
        return Err(ProviderError::TooLarge { max, items });
    }
    Ok(())
}

/// Items of a provider, of which there are at most [`MAX_ITEMS`], with a bound of their size.
#[derive(Default)]
pub(super) struct ItemCollector {
    items: Vec<ItemSummary>,
    bytes: usize,
}

impl ItemCollector {
    pub(super) fn add(
        &mut self,
        items: impl IntoIterator<Item = ItemSummary>,
    ) -> Result<(), ProviderError> {
        for item in items {
            self.bytes += size_of_item(&item);
            self.items.push(item);
        }
        check_count(self.bytes, MAX_LIST, "bytes in the list of items")?;
        check_count(self.items.len(), MAX_ITEMS, "items")
    }

    pub(super) fn into_items(self) -> Vec<ItemSummary> {
        self.items
    }
}

fn size_of_item(item: &ItemSummary) -> usize {
    let texts = [
        &item.id,
        &item.path,
        &item.title,
        &item.vault_id,
        &item.vault_name,
    ];
    let texts = texts.into_iter().chain(&item.urls);
    size_of::<ItemSummary>()
        + texts
            .map(|text| size_of::<String>() + text.len())
            .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_a_bound_of_its_size() {
        let vault = ProviderVault {
            id: "v".to_owned(),
            name: "Team".to_owned(),
        };
        let urls = || (0..MAX_URLS).map(|_| "x".repeat(MAX_URL));
        let large = summarize(&vault, "i".to_owned(), "Shop", urls());
        let mut list = ItemCollector::default();
        let count = MAX_LIST / size_of_item(&large);
        list.add(vec![large.clone(); count]).unwrap();
        let error = list.add(vec![large]).unwrap_err();
        assert!(error.to_string().contains("bytes in the list"), "{error}");
    }

    #[test]
    fn name_has_no_control_characters_and_is_bounded() {
        assert_eq!(
            display_name("a\r\n\u{1b}[2Jb"),
            "a\u{fffd}\u{fffd}\u{fffd}[2Jb"
        );
        assert_eq!(display_name("bank\u{202e}moc"), "bank\u{fffd}moc");
        assert_eq!(display_name(&"ä".repeat(300)).chars().count(), MAX_NAME);
        assert_eq!(display_name("Zürich / 東京 👍"), "Zürich / 東京 👍");
    }

    #[test]
    fn text_that_cannot_be_a_url_is_dropped() {
        let urls = [
            "",
            " ",
            "https://a.example\n",
            "https://b\u{0}",
            "not a url",
        ];
        let urls = urls
            .map(str::to_owned)
            .into_iter()
            .chain(["x".repeat(MAX_URL + 1)]);
        assert_eq!(usable_urls(urls), ["https://a.example", "not a url"]);
        let many = (0..100).map(|number| format!("https://{number}.example"));
        assert_eq!(usable_urls(many).len(), MAX_URLS);
    }

    #[test]
    fn generated_id_is_no_path() {
        for id in ["ftz4pm2xxwmwrsd7rjqn7grzfz", "d3b07384-d113", "A_1"] {
            assert!(is_generated_id(id), "{id}");
        }
        let long = "a".repeat(MAX_ID + 1);
        for id in ["", "..", "../x", "a/b", "a%2fb", "a?b", "ä", "a b", &long] {
            assert!(!is_generated_id(id), "{id}");
        }
    }
}
