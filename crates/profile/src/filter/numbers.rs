//! Lists of numbers, with ranges among them.

/// Numbers that are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Numbers {
    /// First and last of each range.
    ranges: Vec<(u32, u32)>,
}

/// A list of numbers that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number and no range FIRST-LAST")]
pub struct BadNumbers(pub String);

impl Numbers {
    /// Reads `N,FIRST-LAST,…`, each between 0 and 2³² - 1.
    ///
    /// # Errors
    /// When a word is neither, when a range ends before it begins, and when there is nothing.
    pub fn parse(text: &str) -> Result<Numbers, BadNumbers> {
        let bad = |word: &str| BadNumbers(word.to_owned());
        let number = |word: &str| word.parse::<u32>().ok();
        let range = |word: &str| match word.split_once('-') {
            Some((first, last)) => {
                let (first, last) = number(first).zip(number(last)).ok_or_else(|| bad(word))?;
                if first <= last { Ok((first, last)) } else { Err(bad(word)) }
            }
            None => number(word).map(|only| (only, only)).ok_or_else(|| bad(word)),
        };
        let mut ranges: Vec<(u32, u32)> = text.split(',').map(|word| range(word.trim())).collect::<Result<_, _>>()?;
        ranges.sort_unstable();
        Ok(Numbers { ranges })
    }

    /// Whether a number is wanted.
    pub fn has(&self, number: u32) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges() {
        let numbers = Numbers::parse("7, 0-2,4294967295").unwrap();
        let wanted: Vec<u32> = (0..10).chain([u32::MAX]).filter(|number| numbers.has(*number)).collect();
        assert_eq!(wanted, [0, 1, 2, 7, u32::MAX]);
        for bad in ["", "1,", "2-1", "x", "-1", "1-", "4294967296", "1-2-3"] {
            assert!(Numbers::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Numbers::parse("1,2-1").unwrap_err().to_string(), "\"2-1\" is no number and no range FIRST-LAST");
    }
}
