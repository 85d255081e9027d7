//! Prints tables, and computes the median.

/// The median of the values; zero if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The smallest and the largest value.
pub(super) fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values
        .into_iter()
        .fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

/// Prints rows under their headings; the first column is text, the others are right-aligned.
pub(super) fn print<const N: usize>(headings: [&str; N], rows: &[[String; N]]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let line = |cells: [&str; N]| {
        for (column, cell) in cells.iter().enumerate() {
            match column {
                0 => print!("{cell:<width$}", width = width(0)),
                _ => print!("  {cell:>width$}", width = width(column)),
            }
        }
        println!();
    };
    line(headings);
    for row in rows {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::{median, range};

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]).to_bits(), 2.5_f64.to_bits());
        assert_eq!(range([3.0, 1.0]), (1.0, 3.0));
    }
}
