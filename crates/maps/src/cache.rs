//! Answers of a map, kept for a while.

use crate::{Looked, LookupError, Map, Value};
use mail::Answer;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Answers in each of the two generations of a cache.
const GENERATION_MAX: usize = 10_000;

/// A map whose answers are kept: values, and that there is none. Errors are not kept.
pub struct Cached<M> {
    map: M,
    ttl: Duration,
    kept: Mutex<Kept>,
}

/// Two generations: when the young one is full it becomes the old one, whose answers are dropped.
#[derive(Default)]
struct Kept {
    young: HashMap<Box<str>, (Instant, Option<Value>)>,
    old: HashMap<Box<str>, (Instant, Option<Value>)>,
}

impl Kept {
    fn get(&self, key: &str, now: Instant) -> Option<Option<Value>> {
        let (until, value) = self.young.get(key).or_else(|| self.old.get(key))?;
        (*until > now).then(|| value.clone())
    }

    fn add(&mut self, key: &str, until: Instant, value: Option<Value>) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.into(), (until, value));
    }
}

impl<M: Map + ?Sized> Map for std::sync::Arc<M> {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        (**self).get(key)
    }

    fn check(&self) -> Answer<'_, Result<(), LookupError>> {
        (**self).check()
    }

    fn verify<'a>(&'a self, key: &'a str, password: &'a str) -> Answer<'a, Looked> {
        (**self).verify(key, password)
    }
}

impl<M: Map> Cached<M> {
    /// Keeps the answers of a map for this time.
    pub fn new(map: M, ttl: Duration) -> Self {
        Self { map, ttl, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Map> Map for Cached<M> {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        if let Some(value) = self.kept().get(key, Instant::now()) {
            return Answer::Ready(Ok(value));
        }
        self.map.get(key).map(move |looked| {
            if let Ok(value) = &looked {
                self.kept().add(key, Instant::now() + self.ttl, value.clone());
            }
            looked
        })
    }

    fn check(&self) -> Answer<'_, Result<(), LookupError>> {
        self.map.check()
    }

    fn verify<'a>(&'a self, key: &'a str, password: &'a str) -> Answer<'a, Looked> {
        self.map.verify(key, password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts its look-ups; the first fails.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Map for Counting {
        fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
            Answer::Ready(match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err(LookupError::new(&"x", "down")),
                _ => Ok((key != "none").then(|| key.into())),
            })
        }
    }

    fn get(map: &Cached<Counting>, key: &str) -> Looked {
        let Answer::Ready(looked) = map.get(key) else { panic!("answered later") };
        looked
    }

    #[test]
    fn values_and_missing_keys_are_kept_and_errors_are_not() {
        let map = Cached::new(Counting::default(), Duration::from_secs(3600));
        assert!(get(&map, "a").is_err());
        for _ in 0..3 {
            assert_eq!(get(&map, "a").unwrap().as_deref(), Some("a"));
            assert_eq!(get(&map, "none"), Ok(None));
        }
        assert_eq!(map.map.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn an_answer_that_is_too_old_is_asked_for_again() {
        let map = Cached::new(Counting::default(), Duration::ZERO);
        let _ = get(&map, "a");
        for _ in 0..3 {
            assert!(get(&map, "a").is_ok());
        }
        assert_eq!(map.map.0.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn the_number_of_answers_is_bounded() {
        let map = Cached::new(Counting::default(), Duration::from_secs(3600));
        for n in 0..3 * GENERATION_MAX {
            let _ = get(&map, &n.to_string());
        }
        let kept = map.kept();
        assert!(kept.young.len() + kept.old.len() <= 2 * GENERATION_MAX);
    }
}
