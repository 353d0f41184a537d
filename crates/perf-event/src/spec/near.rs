//! The name that somebody may have meant.

/// The nearest of `known` to `word`, where few letters differ.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(64).collect();
    let limit = (word.len() / 3).clamp(1, 3);
    let best = known.into_iter().map(|name| (distance(&word, name), name)).min_by_key(|(distance, _)| *distance)?;
    (best.0 <= limit).then_some(best.1)
}

/// Letters to add, drop, change or swap with their neighbour, whatever their case.
fn distance(word: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().take(64).collect();
    let same = |a: char, b: char| a.eq_ignore_ascii_case(&b);
    let width = name.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for i in 1..=word.len() {
        let mut row = vec![i; width];
        for j in 1..width {
            let change = last[j - 1] + usize::from(!same(word[i - 1], name[j - 1]));
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && same(word[i - 1], name[j - 2]) && same(word[i - 2], name[j - 1]) {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[width - 1]
}
