use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::commit::Commit;

fn at(ms: u64) -> Moment {
    Moment(Duration::from_millis(ms))
}

/// The numbers that tasks have logged, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<u64>>>);

impl Log {
    fn note(&self, what: u64) {
        self.0.borrow_mut().push(what);
    }

    fn take(&self) -> Vec<u64> {
        self.0.take()
    }
}

fn run_all(executor: &Executor) {
    while executor.poll_next() {}
}

#[test]
fn tasks_take_turns_in_the_order_in_which_they_were_woken() {
    let (executor, log) = (Executor::new(), Log::default());
    for task in 0..3 {
        let log = log.clone();
        executor.spawn(async move {
            for _ in 0..2 {
                log.note(task);
                turn().await;
            }
        });
    }
    run_all(&executor);
    assert_eq!(log.take(), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn timers_wake_by_time_and_equal_ones_in_order_of_creation() {
    let (executor, log) = (Executor::new(), Log::default());
    for ms in [30, 10, 20, 10] {
        let (sleep, log, mark) = (executor.sleep_until(at(ms)), log.clone(), executor.clone());
        executor.spawn(async move {
            sleep.await;
            log.note(ms + u64::try_from(mark.now().0.as_millis()).unwrap() * 1000);
        });
    }
    run_all(&executor);
    assert_eq!((log.take(), executor.next_timer()), (vec![], Some(at(10))));
    executor.advance(at(9));
    assert!(!executor.poll_next());
    executor.advance(at(20));
    run_all(&executor);
    assert_eq!((log.take(), executor.next_timer()), (vec![20_010, 20_010, 20_020], Some(at(30))));
    executor.advance(at(5));
    assert_eq!(executor.now(), at(20), "time goes back");
}

#[test]
fn a_dropped_timer_wakes_no_task() {
    let executor = Executor::new();
    let sleep = executor.sleep_until(at(5));
    assert_eq!(executor.run(sleep), None, "there is nothing but a timer to wait for");
    assert_eq!(executor.next_timer(), None);
}

#[test]
fn run_shares_turns_with_the_tasks_that_it_waits_for() {
    let executor = Executor::new();
    let (ask, mut asked) = mpsc::channel::<oneshot::Sender<u64>>(1);
    executor.spawn(async move {
        while let Some(reply) = asked.recv().await {
            turn().await;
            let _ = reply.send(7);
        }
    });
    let answer = executor.run(async {
        let (reply, answer) = oneshot::channel();
        ask.send(reply).await.ok()?;
        answer.await.ok()
    });
    assert_eq!(answer, Some(Some(7)));
    assert_eq!(executor.run(std::future::pending::<()>()), None);
}

/// The work registers a waker only in the first run, like a task that waits for a journal group.
#[test]
fn work_that_goes_on_in_another_run_is_still_woken() {
    let executor = Executor::new();
    let commit = Rc::new(Commit::new(0));
    let mut work = pin!(commit.wait(1));
    assert_eq!(executor.run(work.as_mut()), None);
    let stored = Rc::clone(&commit);
    executor.spawn(async move { stored.advance(1) });
    assert_eq!(executor.run(work), Some(Ok(())));
}

/// A value whose destructor sends a message, spawns a task and wakes a task, as the destructors of
/// batches do.
struct Lively(Executor, mpsc::Sender<()>, Log);

impl Drop for Lively {
    fn drop(&mut self) {
        let log = self.2.clone();
        let _ = self.1.try_send(());
        self.0.spawn(async move { log.note(1) });
        self.2.note(0);
    }
}

#[test]
fn after_the_end_nothing_runs_even_from_destructors() {
    let (executor, log) = (Executor::new(), Log::default());
    let (sender, mut receiver) = mpsc::channel(4);
    for _ in 0..2 {
        let lively = Lively(executor.clone(), sender.clone(), log.clone());
        executor.spawn(async move {
            let _lively = lively;
            std::future::pending::<()>().await;
        });
    }
    let noted = log.clone();
    executor.spawn(async move {
        while receiver.recv().await.is_some() {
            noted.note(2);
        }
    });
    run_all(&executor);
    executor.end();
    assert_eq!((log.take(), executor.ready(), executor.poll_next()), (vec![0, 0], 0, false));
    // No task may still hold a reference to the executor. Such a reference would form a cycle.
    assert_eq!(Rc::strong_count(&executor.0), 1);
}

#[test]
fn a_late_waker_does_not_wake_the_task_that_reused_its_slot() {
    let (executor, polls) = (Executor::new(), Log::default());
    let (send, kept) = oneshot::channel();
    executor.spawn(async move {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        drop(send.send(waker));
    });
    let old = executor.run(kept).unwrap().unwrap();
    let count = polls.clone();
    executor.spawn(poll_fn(move |_| {
        count.note(1);
        Poll::Pending
    }));
    run_all(&executor);
    assert_eq!(executor.0.tasks.borrow().len(), 1, "the place is used again");
    old.wake();
    run_all(&executor);
    assert_eq!(polls.take(), [1]);
}

/// One action of a task.
#[derive(Clone, Debug)]
enum Deed {
    Turn,
    Sleep(u64),
    Spawn(Vec<Deed>),
    Wait,
    Wake,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let leaf = prop_oneof![
        Just(Deed::Turn),
        (0..20_u64).prop_map(Deed::Sleep),
        Just(Deed::Wait),
        Just(Deed::Wake)
    ];
    let deed = leaf.prop_recursive(3, 40, 6, |inner| {
        prop_oneof![inner.clone(), prop::collection::vec(inner, 0..6).prop_map(Deed::Spawn)]
    });
    prop::collection::vec(deed, 0..8)
}

/// Performs `deeds`. A `Wake` in any task ends a `Wait`.
fn task(
    executor: Executor,
    notify: Rc<tokio::sync::Notify>,
    log: Log,
    number: u64,
    deeds: Vec<Deed>,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        for (place, deed) in (0..).zip(deeds) {
            log.note(number * 10 + place);
            match deed {
                Deed::Turn => turn().await,
                Deed::Sleep(ms) => {
                    let until = executor.now() + Duration::from_millis(ms);
                    executor.sleep_until(until).await;
                    assert!(executor.now() >= until);
                }
                Deed::Spawn(deeds) => {
                    let next = number * 10 + place + 1;
                    let spawned =
                        task(executor.clone(), Rc::clone(&notify), log.clone(), next, deeds);
                    executor.spawn(spawned);
                }
                Deed::Wait => notify.notified().await,
                Deed::Wake => notify.notify_one(),
            }
        }
    })
}

/// Returns the history of all actions and the number of polls; `draws` selects the tasks.
fn history(deeds: &[Vec<Deed>], draws: &[usize]) -> (Vec<u64>, usize) {
    let (executor, log) = (Executor::new(), Log::default());
    let notify = Rc::new(tokio::sync::Notify::new());
    for (number, deeds) in (1..).zip(deeds) {
        let task = task(executor.clone(), Rc::clone(&notify), log.clone(), number, deeds.clone());
        executor.spawn(task);
    }
    let mut draws = draws.iter().cycle();
    let mut polls = 0;
    loop {
        while executor.poll_drawn(|count| draws.next().map_or(0, |draw| draw % count)) {
            polls += 1;
        }
        match executor.next_timer() {
            Some(at) => executor.advance(at),
            None => break,
        }
    }
    // Some tasks wait for a wake that never comes. They are dropped with the executor.
    executor.end();
    (log.take(), polls)
}

proptest! {
    #[test]
    fn the_same_draws_give_the_same_history(
        tasks in prop::collection::vec(deeds(), 1..6),
        draws in prop::collection::vec(0..100_usize, 1..20),
    ) {
        prop_assert_eq!(history(&tasks, &draws), history(&tasks, &draws));
    }

    /// If no task waits, every action is completed, whatever the order.
    #[test]
    fn every_task_runs_to_its_end(
        tasks in prop::collection::vec(deeds(), 1..6),
        draws in prop::collection::vec(0..100_usize, 1..20),
    ) {
        fn without_waits(deeds: Vec<Deed>) -> Vec<Deed> {
            let keep = |deed| match deed {
                Deed::Wait => Deed::Turn,
                Deed::Spawn(deeds) => Deed::Spawn(without_waits(deeds)),
                other => other,
            };
            deeds.into_iter().map(keep).collect()
        }
        fn count(deeds: &[Deed]) -> usize {
            let of = |deed: &Deed| match deed { Deed::Spawn(deeds) => 1 + count(deeds), _ => 1 };
            deeds.iter().map(of).sum()
        }
        let tasks: Vec<_> = tasks.into_iter().map(without_waits).collect();
        let (done, _) = history(&tasks, &draws);
        prop_assert_eq!(done.len(), tasks.iter().map(|deeds| count(deeds)).sum::<usize>());
    }
}
