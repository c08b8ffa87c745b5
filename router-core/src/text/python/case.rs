//! Case of letters as `str` changes it.

/// `str.title`: each run of cased letters starts with a title-case letter.
pub(super) fn title(text: &str) -> String {
    let lower = text.to_lowercase();
    let mut inside = false;
    let mut titled = String::with_capacity(text.len());
    for (letter, lowered) in with_lowered(text, &lower) {
        if inside {
            titled.push_str(lowered);
        } else {
            push_title(&mut titled, letter);
        }
        inside = is_cased(letter);
    }
    titled
}

/// `str.capitalize`: a title-case letter, then small ones.
pub(in crate::text) fn capitalize(text: &str) -> String {
    let lower = text.to_lowercase();
    let mut capitalized = String::with_capacity(text.len());
    for (i, (letter, lowered)) in with_lowered(text, &lower).enumerate() {
        if i == 0 {
            push_title(&mut capitalized, letter);
        } else {
            capitalized.push_str(lowered);
        }
    }
    capitalized
}

/// `str.swapcase`.
pub(super) fn swap(text: &str) -> String {
    let lower = text.to_lowercase();
    let mut swapped = String::with_capacity(text.len());
    for (letter, lowered) in with_lowered(text, &lower) {
        if letter.is_uppercase() {
            swapped.push_str(lowered);
        } else if letter.is_lowercase() {
            swapped.extend(letter.to_uppercase());
        } else {
            swapped.push(letter);
        }
    }
    swapped
}

/// `str.isupper` and, with `upper` unset, `str.islower`: has cased letters, all of that case.
pub(in crate::text) fn is_all(text: &str, upper: bool) -> bool {
    let fits = |letter: char| {
        if upper {
            letter.is_uppercase()
        } else {
            letter.is_lowercase()
        }
    };
    text.chars().any(fits) && text.chars().all(|letter| !is_cased(letter) || fits(letter))
}

/// `str.istitle`.
pub(super) fn is_title(text: &str) -> bool {
    let (mut inside, mut any) = (false, false);
    for letter in text.chars() {
        if letter.is_uppercase() || is_title_letter(letter) {
            if inside {
                return false;
            }
            (inside, any) = (true, true);
        } else if letter.is_lowercase() {
            if !inside {
                return false;
            }
            any = true;
        } else {
            inside = false;
        }
    }
    any
}

fn is_cased(letter: char) -> bool {
    letter.is_uppercase() || letter.is_lowercase() || is_title_letter(letter)
}

/// Letters that are neither capital nor small.
fn is_title_letter(letter: char) -> bool {
    matches!(letter, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ' | 'ᾈ'..='ᾏ' | 'ᾘ'..='ᾟ' | 'ᾨ'..='ᾯ' | 'ᾼ' | 'ῌ' | 'ῼ')
}

/// The letters of a text, each with what it is in `lower`, the text in small letters. A sigma depends on what stands around it, so
/// that the text has to be lowered as a whole.
fn with_lowered<'a>(text: &'a str, lower: &'a str) -> impl Iterator<Item = (char, &'a str)> {
    let mut rest = lower;
    text.chars().map(move |letter| {
        let length = if letter == 'Σ' {
            letter.len_utf8()
        } else {
            letter.to_lowercase().map(char::len_utf8).sum()
        };
        let (lowered, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        rest = after;
        (letter, lowered)
    })
}

/// Writes a letter in title case: its capital form, of which only the first letter is capital, but for letters with a form of their own.
fn push_title(out: &mut String, letter: char) {
    let shifted = |by: u32| char::from_u32(u32::from(letter) + by).unwrap_or(letter);
    match letter {
        'Ǆ' | 'ǅ' | 'ǆ' => out.push('ǅ'),
        'Ǉ' | 'ǈ' | 'ǉ' => out.push('ǈ'),
        'Ǌ' | 'ǋ' | 'ǌ' => out.push('ǋ'),
        'Ǳ' | 'ǲ' | 'ǳ' => out.push('ǲ'),
        'ŉ' => out.push_str("ʼN"),
        'ა'..='ჺ' | 'ჽ'..='ჿ' => out.push(letter),
        'ᾀ'..='ᾇ' | 'ᾐ'..='ᾗ' | 'ᾠ'..='ᾧ' => out.push(shifted(8)),
        'ᾳ' | 'ῃ' | 'ῳ' => out.push(shifted(9)),
        'ᾲ' => out.push_str("\u{1fba}\u{345}"),
        'ᾴ' => out.push_str("\u{386}\u{345}"),
        'ῂ' => out.push_str("\u{1fca}\u{345}"),
        'ῄ' => out.push_str("\u{389}\u{345}"),
        'ῲ' => out.push_str("\u{1ffa}\u{345}"),
        'ῴ' => out.push_str("\u{38f}\u{345}"),
        'ᾷ' => out.push_str("\u{391}\u{342}\u{345}"),
        'ῇ' => out.push_str("\u{397}\u{342}\u{345}"),
        'ῷ' => out.push_str("\u{3a9}\u{342}\u{345}"),
        _ if is_title_letter(letter) => out.push(letter),
        _ => {
            let mut capital = letter.to_uppercase();
            out.extend(capital.next());
            out.extend(capital.flat_map(char::to_lowercase));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_change_as_in_python() {
        // Right sides printed by CPython 3.11.
        for (text, titled, capitalized, swapped) in [
            ("hello wORLD", "Hello World", "Hello world", "HELLO World"),
            (
                "they're 3rd o'neil",
                "They'Re 3Rd O'Neil",
                "They're 3rd o'neil",
                "THEY'RE 3RD O'NEIL",
            ),
            ("ßa ﬁn ŉx", "Ssa Fin ʼNx", "Ssa ﬁn ŉx", "SSA FIN ʼNX"),
            ("ǆ Ǆ ǅx", "ǅ ǅ ǅx", "ǅ ǆ ǆx", "Ǆ ǆ ǅX"),
            ("ΑΣ ΑΣΑ Σ", "Ας Ασα Σ", "Ας ασα σ", "ας ασα σ"),
            (
                "ᾳ ᾀ \u{1fb7} ა",
                "ᾼ ᾈ \u{391}\u{342}\u{345} ა",
                "ᾼ ᾀ \u{1fb7} ა",
                "ΑΙ ἈΙ \u{391}\u{342}Ι Ა",
            ),
            ("İx Ⅷ ⓐb", "İx Ⅷ Ⓐb", "İx ⅷ ⓐb", "i̇X ⅷ ⒶB"),
        ] {
            assert_eq!(title(text), titled);
            assert_eq!(capitalize(text), capitalized);
            assert_eq!(swap(text), swapped);
        }
        assert!(
            is_all("AB 1", true)
                && !is_all("Ab", true)
                && !is_all("1", true)
                && !is_all("Aǅ", true)
        );
        assert!(is_title("Ab Cd 1E") && !is_title("AB") && !is_title("ab") && !is_title("1"));
    }
}
