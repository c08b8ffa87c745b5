//! Local time and its formatting, as `datetime.now().strftime` does it in the C locale.

use core::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A wall-clock time in the engine's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Days since 1970-01-01.
    days: i64,
    /// Seconds since midnight, 0 to 86,399.
    second_of_day: u32,
}

/// Year, month and day of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: i64,
    month: u32,
    day: u32,
}

impl LocalTime {
    /// The local time at `unix_s` seconds since 1970 (UTC) in a zone that is `offset_s` seconds ahead of UTC.
    pub fn from_unix(unix_s: i64, offset_s: i32) -> Self {
        let local = unix_s.saturating_add(i64::from(offset_s));
        let second_of_day = u32::try_from(local.rem_euclid(86_400)).unwrap_or(0);
        Self {
            days: local.div_euclid(86_400),
            second_of_day,
        }
    }

    /// Midnight at the start of a day; `month` and `day` count from 1 and may overflow into the next month or year.
    pub fn from_date(year: i32, month: u32, day: u32) -> Self {
        Self {
            days: days_from_civil(i64::from(year), month, day),
            second_of_day: 0,
        }
    }

    /// The time that many seconds later, or earlier.
    pub(super) fn plus_seconds(self, seconds: i32) -> Self {
        let local = self.days * 86_400 + i64::from(self.second_of_day);
        Self::from_unix(local, seconds)
    }

    fn date(self) -> Date {
        // Years that start in March, in cycles of 400 (146,097 days); see Howard Hinnant, "chrono-compatible low-level date algorithms".
        let shifted = self.days + 719_468;
        let cycle = shifted.div_euclid(146_097);
        let day_of_cycle = shifted.rem_euclid(146_097);
        let year_of_cycle = (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524
            - day_of_cycle / 146_096)
            / 365;
        let day_of_year =
            day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = year_of_cycle + cycle * 400 + i64::from(month <= 2);
        Date {
            year,
            month: u32::try_from(month).unwrap_or(1),
            day: u32::try_from(day).unwrap_or(1),
        }
    }

    /// 0 is Sunday.
    fn weekday(self) -> usize {
        usize::try_from((self.days + 4).rem_euclid(7)).unwrap_or(0)
    }

    /// 0 is January 1st.
    fn day_of_year(self) -> i64 {
        self.days - days_from_civil(self.date().year, 1, 1)
    }

    /// Year and week of ISO 8601: the week belongs to the year that holds its Thursday.
    fn iso_week(self) -> (i64, i64) {
        let monday_based = (self.days + 3).rem_euclid(7);
        let thursday = Self {
            days: self.days - monday_based + 3,
            second_of_day: 0,
        };
        (thursday.date().year, thursday.day_of_year() / 7 + 1)
    }

    /// Formats the time. An unknown directive stays as it is; the time zone's name and offset are empty, as for a naive `datetime`.
    pub fn strftime(self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() + 16);
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push(letter);
                continue;
            }
            let mut flag = None;
            let mut directive = letters.next();
            if let Some(found @ ('-' | '_' | '0' | '^')) = directive {
                flag = Some(found);
                directive = letters.next();
            }
            match directive {
                Some(directive) => self.directive(&mut out, directive, flag),
                None => out.push('%'),
            }
        }
        out
    }

    fn directive(self, out: &mut String, directive: char, flag: Option<char>) {
        let Date { year, month, day } = self.date();
        let [hour, minute, second] = [
            self.second_of_day / 3600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        ]
        .map(i64::from);
        let half_day = (hour + 11) % 12 + 1;
        let day_name = DAYS.get(self.weekday()).copied().unwrap_or_default();
        let month_name = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
        let weekday = i64::try_from(self.weekday()).unwrap_or(0);
        let (iso_year, iso_week) = self.iso_week();
        let short = |name: &'static str| name.get(..3).unwrap_or_default();
        let field = match directive {
            'Y' => Field::number(year, 1, '0'),
            'C' => Field::number(year.div_euclid(100), 2, '0'),
            'y' => Field::number(year.rem_euclid(100), 2, '0'),
            'G' => Field::number(iso_year, 1, '0'),
            'g' => Field::number(iso_year.rem_euclid(100), 2, '0'),
            'm' => Field::number(month.into(), 2, '0'),
            'd' => Field::number(day.into(), 2, '0'),
            'e' => Field::number(day.into(), 2, ' '),
            'H' => Field::number(hour, 2, '0'),
            'k' => Field::number(hour, 2, ' '),
            'I' => Field::number(half_day, 2, '0'),
            'l' => Field::number(half_day, 2, ' '),
            'M' => Field::number(minute, 2, '0'),
            'S' => Field::number(second, 2, '0'),
            'j' => Field::number(self.day_of_year() + 1, 3, '0'),
            'w' => Field::number(weekday, 1, '0'),
            'u' => Field::number((weekday + 6) % 7 + 1, 1, '0'),
            'U' => Field::number((self.day_of_year() + 7 - weekday) / 7, 2, '0'),
            'W' => Field::number((self.day_of_year() + 7 - (weekday + 6) % 7) / 7, 2, '0'),
            'V' => Field::number(iso_week, 2, '0'),
            'f' => Field::number(0, 6, '0'),
            'A' => Field::Text(day_name.into()),
            'a' => Field::Text(short(day_name).into()),
            'B' => Field::Text(month_name.into()),
            'b' | 'h' => Field::Text(short(month_name).into()),
            'p' => Field::Text(if hour < 12 { "AM" } else { "PM" }.into()),
            'P' => Field::Text(if hour < 12 { "am" } else { "pm" }.into()),
            'F' => Field::Text(self.strftime("%Y-%m-%d")),
            'D' | 'x' => Field::Text(self.strftime("%m/%d/%y")),
            'T' | 'X' => Field::Text(self.strftime("%H:%M:%S")),
            'R' => Field::Text(self.strftime("%H:%M")),
            'r' => Field::Text(self.strftime("%I:%M:%S %p")),
            'c' => Field::Text(self.strftime("%a %b %e %H:%M:%S %Y")),
            'z' | 'Z' => Field::Text(String::new()),
            'n' => Field::Text("\n".into()),
            't' => Field::Text("\t".into()),
            '%' => Field::Text("%".into()),
            unknown => Field::Text(format!(
                "%{}{unknown}",
                flag.map(String::from).unwrap_or_default()
            )),
        };
        field.write(out, flag);
    }
}

/// What a directive stands for.
enum Field {
    Text(String),
    Number { value: i64, width: usize, pad: char },
}

impl Field {
    fn number(value: i64, width: usize, pad: char) -> Self {
        Self::Number { value, width, pad }
    }

    /// Writes the field; `-` takes padding away, `_` and `0` change it, `^` makes capitals.
    fn write(self, out: &mut String, flag: Option<char>) {
        match self {
            Self::Text(text) if flag == Some('^') => out.push_str(&text.to_uppercase()),
            Self::Text(text) => out.push_str(&text),
            Self::Number { value, width, pad } => {
                let (width, pad) = match flag {
                    Some('-') => (0, pad),
                    Some('_') => (width, ' '),
                    Some('0') => (width, '0'),
                    _ => (width, pad),
                };
                // Writing to a string can't fail.
                _ = if pad == '0' {
                    write!(out, "{value:0width$}")
                } else {
                    write!(out, "{value:width$}")
                };
            }
        }
    }
}

/// Days from 1970-01-01 to a date; the inverse of [`LocalTime::date`].
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let (month, day) = (i64::from(month), i64::from(day));
    let year = if month <= 2 { year - 1 } else { year };
    let cycle = year.div_euclid(400);
    let year_of_cycle = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    cycle * 146_097 + day_of_cycle - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_written_as_by_python() {
        // 2024-07-06 15:04:05 UTC, a Saturday; right sides printed by CPython 3.11 on Linux.
        let time = LocalTime::from_unix(1_720_278_245, 0);
        for (format, expected) in [
            ("%d %b %Y", "06 Jul 2024"),
            ("%B %d, %Y", "July 06, 2024"),
            ("%Y-%m-%d", "2024-07-06"),
            ("%A, %B %-d", "Saturday, July 6"),
            ("%a %e|%_d|%y", "Sat  6| 6|24"),
            ("%H:%M:%S %I %p", "15:04:05 03 PM"),
            ("%j %U %W %V %G %u %w", "188 26 27 27 2024 6 6"),
            ("%F %T %D %R", "2024-07-06 15:04:05 07/06/24 15:04"),
            ("%c", "Sat Jul  6 15:04:05 2024"),
            ("100%% %z%Z.", "100% ."),
            ("%^a %^B", "SAT JULY"),
        ] {
            assert_eq!(time.strftime(format), expected, "{format}");
        }
    }

    #[test]
    fn the_zone_moves_the_date() {
        assert_eq!(
            LocalTime::from_unix(1_735_689_599, 0).strftime("%F %T"),
            "2024-12-31 23:59:59"
        );
        assert_eq!(
            LocalTime::from_unix(1_735_689_599, 3600).strftime("%F %T"),
            "2025-01-01 00:59:59"
        );
        assert_eq!(
            LocalTime::from_unix(0, -1).strftime("%F %T"),
            "1969-12-31 23:59:59"
        );
    }

    #[test]
    fn dates_count_every_day() {
        let mut days = days_from_civil(1999, 12, 31);
        for year in 2000..2101 {
            for month in 1..=12u32 {
                let leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
                let length = [
                    31,
                    if leap { 29 } else { 28 },
                    31,
                    30,
                    31,
                    30,
                    31,
                    31,
                    30,
                    31,
                    30,
                    31,
                ][month as usize - 1];
                for day in 1..=length {
                    days += 1;
                    let date = LocalTime {
                        days,
                        second_of_day: 0,
                    }
                    .date();
                    assert_eq!(date, Date { year, month, day });
                    assert_eq!(days_from_civil(year, month, day), days);
                }
            }
        }
    }

    #[test]
    fn odd_formats_do_not_panic() {
        let time = LocalTime::from_unix(i64::MAX, i32::MAX);
        for format in ["%", "%-", "%Q", "%-Q", "é%é", "%%%"] {
            time.strftime(format);
        }
        assert_eq!(
            LocalTime::from_date(2024, 2, 29).strftime("%Q %-Q %"),
            "%Q %-Q %"
        );
    }
}
