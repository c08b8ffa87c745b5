//! Unicode normal forms, with the tests that spare most texts the work.

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfkc_quick};

use super::NormalForm;

/// Whether `text` is in `form`. `false` may also mean that a quick look can't tell.
pub(super) fn is_normal(text: &str, form: NormalForm) -> bool {
    match form {
        NormalForm::Nfc => {
            text.chars().all(is_plain) || is_nfc_quick(text.chars()) == IsNormalized::Yes
        }
        NormalForm::Nfkc => is_nfkc_quick(text.chars()) == IsNormalized::Yes,
    }
}

/// `text` in `form`; `None` where it is already.
pub(super) fn normalise(text: &str, form: NormalForm) -> Option<String> {
    if text.is_ascii() || is_normal(text, form) {
        return None;
    }
    Some(match form {
        NormalForm::Nfc => text.nfc().collect(),
        NormalForm::Nfkc => text.nfkc().collect(),
    })
}

/// Characters of common scripts that composition never changes: they don't combine with what stands before them and are in composed
/// form. A text of such characters alone is in NFC.
fn is_plain(letter: char) -> bool {
    matches!(letter,
        '\0'..='\u{2ff}'           // Latin
        | '\u{400}'..='\u{482}'    // Cyrillic
        | '\u{48a}'..='\u{513}'
        | '\u{2010}'..='\u{2027}'  // punctuation
        | '\u{2190}'..='\u{21ff}'  // arrows
        | '\u{2500}'..='\u{26ff}'  // boxes, shapes, symbols
        | '\u{3001}'..='\u{3029}'  // CJK punctuation
        | '\u{3041}'..='\u{3096}'  // kana
        | '\u{30a1}'..='\u{30fe}'
        | '\u{4e00}'..='\u{9fff}'  // ideographs
        | '\u{ac00}'..='\u{d7a3}'  // Hangul syllables
        | '\u{ff01}'..='\u{ff60}'  // fullwidth forms
        | '\u{1f300}'..='\u{1faff}' // pictographs
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_normalization::char::canonical_combining_class;

    #[test]
    fn plain_characters_never_change() {
        for letter in ('\0'..=char::MAX).filter(|&letter| is_plain(letter)) {
            let alone: String = letter.nfc().collect();
            assert_eq!(alone, letter.to_string());
            assert_eq!(canonical_combining_class(letter), 0, "{letter:?}");
            assert_eq!(
                is_nfc_quick(['e', letter].into_iter()),
                IsNormalized::Yes,
                "{letter:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn normalising_gives_the_normal_form(text in "[a-zé\u{300}-\u{303}\u{1100}-\u{1112}\u{1161}-\u{1175}가ﬁ①ａ]{0,8}") {
            let nfc: String = text.nfc().collect();
            prop_assert_eq!(normalise(&text, NormalForm::Nfc).unwrap_or_else(|| text.clone()), nfc);
            let nfkc: String = text.nfkc().collect();
            prop_assert_eq!(normalise(&text, NormalForm::Nfkc).unwrap_or_else(|| text.clone()), nfkc);
        }
    }
}
