//! Tests each pacing rule, and the invariants that must hold for every driver. Complete runs
//! against all kinds of owners are in `acceptance`.

#![expect(
    clippy::unchecked_time_subtraction,
    reason = "a test whose time runs backwards must stop"
)]

mod acceptance;
mod simulation;

use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use simulation::ms;

use super::{Admission, Ending, GAP_FLOOR, Pacing, Shed, Window};

const NO_LAG: Duration = Duration::ZERO;
const START: Duration = Duration::ZERO;

/// The pacing of a node with the default settings.
const fn usual() -> Pacing {
    Pacing::new(ms(50), ms(25), ms(15))
}

/// A window with the usual pacing, and a driver that reports only the events that a test needs.
struct Link(Window);

impl Link {
    fn new() -> Self {
        Self::starting_with(usual().window_start)
    }

    fn starting_with(window_start: u16) -> Self {
        Self(Window::new(Pacing { window_start, ..usual() }, 1))
    }

    fn send(&mut self, count: u32) -> &mut Self {
        for _ in 0..count {
            assert_eq!(self.0.ask(START), Admission::Send);
        }
        self
    }

    fn wait(&mut self, count: u32) -> &mut Self {
        for _ in 0..count {
            assert_eq!(self.0.ask(START), Admission::Wait);
        }
        self
    }

    fn end(&mut self, ending: Ending, took: Duration) -> &mut Self {
        self.0.ended(START, took, ending, NO_LAG, false);
        self
    }

    fn fast(&mut self) -> &mut Self {
        self.end(Ending::Answered, ms(1))
    }

    fn shut(&mut self) -> &mut Self {
        while !self.0.is_shut() {
            self.send(1).end(Ending::Refused, ms(1));
        }
        self
    }

    fn ping(&mut self, took: Duration, ending: Ending) -> &mut Self {
        let at = self.0.ping_at().expect("a shut link plans a ping");
        self.0.ping_sent(at);
        assert_eq!(self.0.ping_at(), None, "one ping at a time");
        self.0.pinged(at, took, ending, NO_LAG);
        self
    }

    /// The time from now to the next ping, in milliseconds.
    fn pause_after(&self, now: Duration) -> f64 {
        (self.0.ping_at().expect("a shut link plans a ping") - now).as_secs_f64() * 1000.0
    }

    #[track_caller]
    fn check(&self, window: f64, in_flight: u32, waiting: u32) {
        assert!((self.0.window() - window).abs() < 1e-9, "window {}", self.0.window());
        assert_eq!((self.0.in_flight(), self.0.waiting()), (in_flight, waiting));
        assert_eq!(self.0.is_shut(), window == 0.0);
    }
}

#[test]
fn a_fast_answer_grows_a_used_window_by_its_reciprocal() {
    let mut link = Link::new();
    link.send(2).fast().check(4.25, 1, 0);
}

#[test]
fn a_window_that_is_less_than_half_used_does_not_grow() {
    let mut link = Link::new();
    link.send(1).fast().check(4.0, 0, 0);
}

#[test]
fn the_window_never_grows_past_its_maximum() {
    let mut link = Link::starting_with(16);
    link.send(16).fast().fast().check(16.0, 14, 0);
}

#[test]
fn slow_answers_refusals_and_losses_halve_the_window() {
    for (ending, took) in
        [(Ending::Answered, ms(26)), (Ending::Refused, ms(0)), (Ending::Lost, ms(50))]
    {
        let mut link = Link::new();
        link.send(1).end(ending, took).check(2.0, 0, 0);
    }
}

#[test]
fn an_answer_at_the_limit_is_fast() {
    let mut link = Link::new();
    link.send(2).end(Ending::Answered, ms(25)).check(4.25, 1, 0);
}

#[test]
fn a_slow_sub_request_cuts_once_and_not_again_when_it_ends() {
    for (ending, took) in
        [(Ending::Answered, ms(30)), (Ending::Refused, ms(30)), (Ending::Lost, ms(50))]
    {
        let mut link = Link::new();
        link.send(1).0.slow(ms(25), NO_LAG);
        link.check(2.0, 1, 0);
        link.0.ended(took, took, ending, NO_LAG, true);
        link.check(2.0, 0, 0);
    }
}

#[test]
fn a_cut_recalls_nothing_and_admits_nothing_until_there_is_room() {
    let mut link = Link::new();
    link.send(4).0.slow(START, NO_LAG);
    link.wait(1).check(2.0, 4, 1);
    link.0.ended(START, ms(30), Ending::Answered, NO_LAG, true);
    link.0.ended(START, ms(30), Ending::Answered, NO_LAG, true);
    assert!(!link.0.next_waiting());
    link.0.ended(START, ms(30), Ending::Answered, NO_LAG, true);
    assert!(link.0.next_waiting());
    link.check(2.0, 2, 0);
}

#[test]
fn below_one_the_link_closes_and_nothing_waits_any_more() {
    let mut link = Link::new();
    link.send(4).wait(3);
    link.end(Ending::Lost, ms(1)).end(Ending::Lost, ms(1)).check(1.0, 2, 3);
    link.end(Ending::Lost, ms(1)).check(0.0, 1, 0);
    assert_eq!(link.0.ask(START), Admission::Overflow(Shed::Shut));
    assert!(!link.0.next_waiting());
}

#[test]
fn waiting_rows_are_not_overtaken() {
    let mut link = Link::new();
    link.send(4).wait(1).fast();
    link.wait(1).check(4.25, 3, 2);
    assert!(link.0.next_waiting());
    assert!(!link.0.next_waiting());
    link.check(4.25, 4, 1);
}

#[test]
fn at_most_sixty_four_rows_wait() {
    let mut link = Link::new();
    link.send(4).wait(64);
    assert_eq!(link.0.ask(START), Admission::Overflow(Shed::Full));
    link.0.gave_up();
    link.wait(1).check(4.0, 4, 64);
}

#[test]
fn a_closed_link_opens_with_one_slot_only_after_a_fast_ping() {
    let mut link = Link::new();
    link.send(4);
    for _ in 0..3 {
        link.end(Ending::Lost, ms(1));
    }
    link.check(0.0, 1, 0);
    link.fast().check(0.0, 0, 0);
    link.ping(ms(2), Ending::Answered).check(1.0, 0, 0);
    assert_eq!((link.0.ping_at(), link.0.last_ping()), (None, Some(ms(2))));
    link.send(1).wait(1).fast().check(2.0, 0, 1);
}

#[test]
fn slow_pings_double_the_pause_up_to_half_a_second_plus_or_minus_a_fifth() {
    let mut link = Link::new();
    link.shut();
    let mut now = START;
    for gap in [25.0, 50.0, 100.0, 200.0, 400.0, 500.0, 500.0] {
        let pause = link.pause_after(now);
        assert!((gap * 0.8..=gap * 1.2).contains(&pause), "{pause} for {gap}");
        now = link.0.ping_at().expect("is planned");
        link.ping(ms(26), Ending::Answered);
    }
}

#[test]
fn the_pause_stays_long_until_two_hundred_fast_answers_in_a_row() {
    for (first, then, gap) in [(0, 199, 100.0), (0, 200, 25.0), (199, 199, 100.0)] {
        let mut link = Link::new();
        link.shut().ping(ms(50), Ending::Lost).ping(ms(50), Ending::Lost);
        link.ping(ms(1), Ending::Answered);
        for _ in 0..first {
            link.send(1).fast();
        }
        if first > 0 {
            link.send(1).end(Ending::Refused, ms(1));
        }
        for _ in 0..then {
            link.send(1).fast();
        }
        link.shut();
        let pause = link.pause_after(START);
        assert!((gap * 0.8..=gap * 1.2).contains(&pause), "{pause} for {gap}");
    }
}

#[test]
fn pings_of_different_seeds_fall_at_different_times() {
    let ping_at = |seed| {
        let mut link = Link(Window::new(usual(), seed));
        link.shut().0.ping_at()
    };
    assert_eq!(ping_at(1), ping_at(1));
    assert_ne!(ping_at(1), ping_at(2));
}

#[test]
fn e7_bad_verdicts_while_the_caller_was_late_are_void() {
    let mut link = Link::new();
    link.send(4).0.slow(START, ms(100));
    link.check(4.0, 4, 0);
    for ending in [Ending::Answered, Ending::Refused, Ending::Lost] {
        link.0.ended(START, ms(100), ending, ms(100), false);
    }
    link.check(4.0, 1, 0);
    link.0.slow(START, ms(10));
    link.check(2.0, 1, 0);
}

#[test]
fn e7_a_ping_that_ended_while_the_caller_was_late_is_repeated_after_the_same_pause() {
    let mut link = Link::new();
    link.shut();
    link.0.ping_sent(START);
    link.0.pinged(START, ms(100), Ending::Answered, ms(100));
    let pause = link.pause_after(START);
    assert!((20.0..=30.0).contains(&pause), "{pause}");
}

#[test]
fn senseless_pacing_settings_are_moved_to_the_nearest_valid_ones() {
    let pacing = Pacing {
        window_start: 0,
        window_max: 0,
        gap_min: Duration::ZERO,
        gap_max: Duration::ZERO,
        ..usual()
    };
    let mut link = Link(Window::new(pacing, 1));
    link.check(1.0, 0, 0);
    link.send(1).end(Ending::Lost, ms(1)).check(0.0, 0, 0);
    assert!(link.0.ping_at() >= Some(GAP_FLOOR * 4 / 5));
}

/// An action of a driver. A test performs such actions in an arbitrary order.
#[derive(Clone, Debug)]
enum Step {
    Ask,
    NextWaiting,
    GaveUp,
    Slow { place: usize, lag: u64 },
    Ended { place: usize, took: u64, ending: Ending, lag: u64 },
    Ping { took: u64, ending: Ending, lag: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![
        6 => Just(Ending::Answered),
        1 => Just(Ending::Refused),
        1 => Just(Ending::Lost),
    ];
    let place = 0..32_usize;
    prop_oneof![
        6 => Just(Step::Ask),
        3 => Just(Step::NextWaiting),
        1 => Just(Step::GaveUp),
        1 => (place.clone(), 0..20_u64).prop_map(|(place, lag)| Step::Slow { place, lag }),
        6 => (place, 0..40_u64, ending.clone(), 0..20_u64)
            .prop_map(|(place, took, ending, lag)| Step::Ended { place, took, ending, lag }),
        1 => (0..40_u64, ending, 0..20_u64)
            .prop_map(|(took, ending, lag)| Step::Ping { took, ending, lag }),
    ]
}

/// The driver's state: which sub-requests in flight were reported as slow, and how many
/// sub-requests wait.
#[derive(Default)]
struct Driver {
    in_flight: Vec<bool>,
    waiting: u32,
}

impl Driver {
    fn step(&mut self, now: Duration, window: &mut Window, step: &Step) {
        match *step {
            Step::Ask => match window.ask(now) {
                Admission::Send => self.in_flight.push(false),
                Admission::Wait => self.waiting += 1,
                Admission::Overflow(shed) => assert_eq!(shed == Shed::Shut, window.is_shut()),
            },
            Step::NextWaiting => {
                if window.next_waiting() {
                    self.waiting -= 1;
                    self.in_flight.push(false);
                }
            }
            Step::GaveUp => {
                if self.waiting > 0 {
                    self.waiting -= 1;
                    window.gave_up();
                }
            }
            Step::Slow { place, lag } => {
                if let Some(reported_slow @ false) = self.in_flight.get_mut(place) {
                    *reported_slow = true;
                    window.slow(now, ms(lag));
                }
            }
            Step::Ended { place, took, ending, lag } => {
                if place < self.in_flight.len() {
                    let reported_slow = self.in_flight.swap_remove(place);
                    window.ended(now, ms(took), ending, ms(lag), reported_slow);
                }
            }
            Step::Ping { took, ending, lag } => {
                if window.ping_at().is_some() {
                    window.ping_sent(now);
                    window.pinged(now, ms(took), ending, ms(lag));
                }
            }
        }
        if window.is_shut() {
            self.waiting = 0;
        }
    }
}

proptest! {
    #[test]
    fn e10_the_window_keeps_its_bounds_and_every_place_is_returned_once(
        window_start in 0..20_u16,
        window_max in 0..20_u16,
        waiting_max in 0..8_u16,
        seed in any::<u64>(),
        steps in vec(step(), 0..400),
    ) {
        let pacing = Pacing { window_start, window_max, waiting_max, ..usual() };
        let most = f64::from(window_max.max(1));
        let mut window = Window::new(pacing, seed);
        let mut driver = Driver::default();
        let mut now = START;
        for step in &steps {
            now += ms(1);
            let before = window.in_flight();
            driver.step(now, &mut window, step);
            let size = window.window();
            prop_assert!(size == 0.0 || (1.0..=most).contains(&size), "window {}", size);
            prop_assert_eq!(window.in_flight() as usize, driver.in_flight.len());
            prop_assert_eq!(window.waiting(), driver.waiting);
            prop_assert!(window.waiting() <= u32::from(waiting_max));
            prop_assert!(f64::from(window.in_flight()) <= most);
            let admitted = window.in_flight() > before;
            prop_assert!(!admitted || f64::from(window.in_flight()) <= size.floor());
            prop_assert_eq!(window.ping_at().is_some(), window.is_shut());
        }
        for reported_slow in driver.in_flight.drain(..) {
            window.ended(now, ms(1), Ending::Answered, NO_LAG, reported_slow);
        }
        prop_assert_eq!(window.in_flight(), 0);
    }
}
