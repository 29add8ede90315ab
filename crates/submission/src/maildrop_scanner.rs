//! Takes in what was dropped while the daemon was down. Anybody may have put anything there, so much of
//! it as they like: files are read by threads that may wait, and so many a round.

use crate::{
    Acceptor, Refusal, Submission,
    maildrop::{self, Dropped, Quota, Unreadable},
    repeats::Repeats,
};
use mail::QueueId;
use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::spawn_blocking};

/// The most files that are passed over silently; what comes beyond them is not reported either.
const PASSED_OVER_MAX: usize = 1000;
/// More wait for the next round.
const FILES_A_ROUND: usize = 500;
/// Users about whom something is noted.
const USERS_MAX: usize = 4096;

/// A round that takes long is followed by so many times as long a pause.
const PAUSE_FACTOR: u32 = 50;
/// The longest pause: mail that programs drop while the daemon runs waits no longer.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// The mail in the drop directory after the last round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Messages that could not be taken in.
    pub count: u64,
    /// The reply to the last one that was refused for now.
    pub reason: Option<String>,
    /// Directories that local users have left there, and that cannot be removed.
    pub directories: u64,
    /// The user who has left most of these directories; `None` without any.
    pub directories_of: Option<u32>,
}

/// Looks again and again.
pub struct MaildropScanner<T> {
    dir: PathBuf,
    message_bytes_max: u64,
    quota: Quota,
    target: Arc<T>,
    /// The last file of each user that was looked at: files that cannot be taken in do not stand in the way of later files.
    after: HashMap<u32, PathBuf>,
    repeats: Repeats,
    /// What could be neither taken in nor put away, and was reported. Directories are among it: anybody can make one.
    passed_over: HashSet<PathBuf>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The result of an attempt to take in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disposition {
    TakenIn,
    /// There is no message in it, or not yet.
    Skipped,
    /// The daemon cannot take the message now: the file stays.
    Refused,
}

impl<T: Acceptor> MaildropScanner<T> {
    /// From this directory; larger messages are set aside. `waiting` tells what remains there.
    pub fn new(
        dir: PathBuf,
        message_bytes_max: u64,
        quota: Quota,
        target: Arc<T>,
        waiting: Arc<Mutex<Waiting>>,
    ) -> Self {
        let (after, repeats, passed_over) = (HashMap::new(), Repeats::default(), HashSet::new());
        Self { dir, message_bytes_max, quota, target, after, repeats, passed_over, waiting }
    }

    /// A round each `interval`, until the daemon closes.
    pub async fn run(mut self, interval: Duration, mut closing: watch::Receiver<bool>) {
        let mut look = tokio::time::interval(interval);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
            let begun = Instant::now();
            // First: each file of an excess that is read costs time that the mail of others waits.
            self.remove_excess().await;
            self.remove_odd().await;
            // Nothing but mail, and more of it: that does not wait.
            while self.round(&closing).await {}
            self.count_waiting().await;
            // A directory that somebody has filled takes no more than a part of the daemon's time.
            let pause = (begun.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX);
            if pause > interval {
                look.reset_after(pause);
            }
            for (uid, count) in self.repeats.left_out(Instant::now()) {
                tracing::warn!(
                    "{count} more lines about files of user {uid} in the drop directory were left out"
                );
            }
        }
    }

    async fn remove_excess(&mut self) {
        let (dir, quota) = (self.dir.clone(), self.quota);
        let Ok(removed) = waiting(move || maildrop::remove_excess(&dir, quota)).await else { return };
        for (uid, count) in removed {
            let text = format!(
                "{} of user {uid} removed from the drop directory: more than twice \
                 `control.maildrop_max_messages` or `control.maildrop_max_size`",
                mail::counted(count, "file")
            );
            self.warn(uid, &text);
        }
    }

    /// Removes what is not a file; a directory that is not empty is passed over.
    async fn remove_odd(&mut self) {
        let (dir, passed_over) = (self.dir.clone(), self.passed_over.clone());
        let listed = waiting(move || maildrop::list_odd(&dir, &passed_over, FILES_A_ROUND)).await;
        for Dropped { uid, path } in listed.unwrap_or_default() {
            self.put_away(uid, &path, "not a regular file", "removed", maildrop::remove).await;
        }
    }

    /// Users can cause these lines as often as they like.
    fn warn(&mut self, uid: u32, text: &str) {
        if self.repeats.may_say(uid, Instant::now()) {
            tracing::warn!("{text}");
        }
    }

    async fn count_waiting(&self) {
        let dir = self.dir.clone();
        let Ok(tally) = waiting(move || maildrop::tally(&dir)).await else { return };
        let mut state = self.state();
        state.count = tally.messages;
        (state.directories, state.directories_of) = (tally.directories, tally.most.map(|(uid, _)| uid));
        if tally.messages == 0 {
            state.reason = None;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when there is more, and all of this was taken in.
    async fn round(&mut self, closing: &watch::Receiver<bool>) -> bool {
        let files = match self.list().await {
            Ok(files) => files,
            Err(e) => {
                tracing::warn!("read the drop directory {}: {e}", self.dir.display());
                return false;
            }
        };
        let is_last = files.len() < FILES_A_ROUND;
        let (mut is_mail, mut refused) = (true, HashSet::new());
        for Dropped { uid, path } in files {
            if *closing.borrow() {
                return false;
            }
            // The next one of this user would be refused as well; those of others perhaps not.
            if refused.contains(&uid) {
                continue;
            }
            let disposition = self.accept_file(uid, &path).await;
            is_mail &= disposition == Disposition::TakenIn;
            if disposition == Disposition::Refused {
                refused.insert(uid);
            }
            if self.after.len() < USERS_MAX || self.after.contains_key(&uid) {
                self.after.insert(uid, path);
            }
        }
        if is_last && refused.is_empty() {
            self.after.clear();
        }
        is_mail && !is_last
    }

    async fn list(&self) -> io::Result<Vec<Dropped>> {
        let (dir, after) = (self.dir.clone(), self.after.clone());
        waiting(move || maildrop::list(&dir, &after, FILES_A_ROUND)).await
    }

    async fn accept_file(&mut self, uid: u32, path: &Path) -> Disposition {
        if self.passed_over.contains(path) {
            return Disposition::Skipped;
        }
        let shown = shown(path);
        let (file, most) = (path.to_owned(), self.message_bytes_max);
        let read = waiting(move || Ok(maildrop::read(&file, most))).await;
        let submission = match read.unwrap_or_else(|e| Err(Unreadable::Later(e.to_string()))) {
            Ok(submission) => submission,
            Err(Unreadable::Bad(why)) => {
                self.put_away(uid, path, &why, "renamed to .bad", maildrop::set_aside).await;
                return Disposition::Skipped;
            }
            Err(Unreadable::NoFile(why)) => {
                self.put_away(uid, path, &why, "removed", maildrop::remove).await;
                return Disposition::Skipped;
            }
            Err(Unreadable::Later(why)) => {
                self.warn(uid, &format!("read {shown} later: {why}"));
                return Disposition::Skipped;
            }
        };
        let copy = submission.clone();
        let accepted = match self.target.submit(submission).await {
            // The program that wrote it has ended long ago: nobody else would hear of it.
            Err(refusal) if refusal.permanent => self.give_back(uid, path, copy, refusal).await,
            accepted => accepted,
        };
        match accepted {
            Ok(_) => {
                let file = path.to_owned();
                if let Err(e) = waiting(move || maildrop::remove(&file)).await {
                    tracing::error!("remove {shown}, whose message is queued: {e}");
                }
                Disposition::TakenIn
            }
            Err(refusal) if refusal.permanent => {
                self.put_away(uid, path, &refusal.text, "renamed to .bad", maildrop::set_aside).await;
                Disposition::Skipped
            }
            Err(refusal) => {
                self.warn(uid, &format!("accept {shown} later: {}", refusal.text));
                self.state().reason = Some(refusal.text);
                Disposition::Refused
            }
        }
    }
}

impl<T: Acceptor> MaildropScanner<T> {
    /// Puts a file away that is never taken in, and reports it once. One that stays where it is, such as a directory, is passed over
    /// from now on.
    async fn put_away(
        &mut self,
        uid: u32,
        path: &Path,
        why: &str,
        done: &str,
        put: fn(&Path) -> io::Result<()>,
    ) {
        let (shown, file) = (shown(path), path.to_owned());
        let Err(e) = waiting(move || put(&file)).await else {
            return self.warn(uid, &format!("{shown} in the drop directory is {done}: {why}"));
        };
        if self.passed_over.len() >= PASSED_OVER_MAX {
            self.passed_over.retain(|path| path.symlink_metadata().is_ok());
        }
        if self.passed_over.len() < PASSED_OVER_MAX {
            self.passed_over.insert(path.to_owned());
            let text =
                format!("{shown} in the drop directory is passed over: {why}, and cannot be {done}: {e}");
            self.warn(uid, &text);
        }
    }

    async fn give_back(
        &mut self,
        uid: u32,
        path: &Path,
        submission: Submission,
        refusal: Refusal,
    ) -> Result<QueueId, Refusal> {
        let returned = self.target.give_back(submission, &refusal.text).await;
        match &returned {
            Ok(id) => {
                let text = format!("{} is returned to its sender as {id}: {}", shown(path), refusal.text);
                self.warn(uid, &text);
            }
            Err(not_returned) if not_returned.permanent => return Err(refusal),
            Err(_) => {}
        }
        returned
    }
}

/// Returns the path for the log. All users choose names there, perhaps with line feeds.
fn shown(path: &Path) -> String {
    path.to_string_lossy().chars().map(|c| if mail::is_invisible(c) { '\u{fffd}' } else { c }).collect()
}

/// Does it in a thread that may wait: this one serves sessions, too.
async fn waiting<R: Send + 'static>(work: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<R> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Memory;
    use mail::{Envelope, ForwardPath, Recipient, ReversePath};
    use std::{
        fs,
        sync::atomic::{AtomicUsize, Ordering},
    };
    use tempfile::TempDir;

    const QUOTA: Quota = Quota { messages: 1000, bytes: 1 << 20 };

    fn drop_mail(dir: &TempDir, count: usize) {
        let mut envelope = Envelope::new(ReversePath::Null);
        envelope.recipients.push(Recipient::new(ForwardPath::parse("bob@b.test", false).unwrap()));
        for number in 0..count {
            maildrop::write_named(&dir.path().join(format!("{number:04}.mail")), &envelope, b"x\n").unwrap();
        }
    }

    fn scanner(dir: &TempDir) -> MaildropScanner<Memory> {
        MaildropScanner::new(dir.path().to_owned(), 1000, QUOTA, Arc::default(), Arc::default())
    }

    fn names(dir: &TempDir) -> Vec<String> {
        let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn sessions_go_on_while_file_after_file_is_bad() {
        let dir = tempfile::tempdir().unwrap();
        (0..300).for_each(|n| fs::write(dir.path().join(format!("{n:03}.mail")), b"no envelope").unwrap());
        let turns = Arc::new(AtomicUsize::new(0));
        let taken = turns.clone();
        let session = tokio::spawn(async move {
            loop {
                taken.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let (_open, closing) = watch::channel(false);
        assert!(!scanner(&dir).round(&closing).await);
        session.abort();
        assert!(turns.load(Ordering::Relaxed) > 100, "{turns:?} turns");
        assert!(names(&dir).iter().all(|name| name.ends_with(".bad")));
    }

    #[tokio::test]
    async fn the_first_of_a_user_that_is_refused_for_now_ends_that_users_round_and_the_next_begins_behind_it()
    {
        let dir = tempfile::tempdir().unwrap();
        drop_mail(&dir, 3);
        let (_open, closing) = watch::channel(false);
        let mut drops = scanner(&dir);
        *drops.target.refuse.lock().unwrap() = Some(Refusal::temporary("452 4.3.1 no room"));
        assert!(!drops.round(&closing).await);
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(drops.after, [(own, dir.path().join("0000.mail"))].into());
        drops.count_waiting().await;
        let waiting =
            Waiting { count: 3, reason: Some("452 4.3.1 no room".to_owned()), ..Waiting::default() };
        assert_eq!(*drops.state(), waiting);
        *drops.target.refuse.lock().unwrap() = None;
        assert!(!drops.round(&closing).await);
        assert!(names(&dir).is_empty() && drops.target.submitted.lock().unwrap().len() == 3);
        drops.count_waiting().await;
        assert_eq!(*drops.state(), Waiting::default());
    }

    #[tokio::test]
    async fn what_is_refused_of_one_user_does_not_keep_the_mail_of_others() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        drop_mail(&dir, 4);
        let path = |number: u32| dir.path().join(format!("{number:04}.mail"));
        for number in 0..4 {
            std::os::unix::fs::chown(path(number), Some(1001 + number % 2), None).unwrap();
        }
        let (_open, closing) = watch::channel(false);
        let mut drops = scanner(&dir);
        *drops.target.refuse.lock().unwrap() = Some(Refusal::temporary("452 4.3.1 no room"));
        drops.round(&closing).await;
        assert_eq!(drops.after, [(1001, path(0)), (1002, path(1))].into(), "one attempt for each user");
    }

    #[tokio::test]
    async fn what_users_have_beyond_their_limits_is_removed_without_being_asked() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for number in 0..50 {
            let path = dir.path().join(format!("{number}.junk"));
            fs::write(&path, "").unwrap();
            std::os::unix::fs::chown(&path, Some(1001), None).unwrap();
        }
        let quota = Quota { messages: 5, bytes: 1000 };
        let scanner = MaildropScanner::new(
            dir.path().to_owned(),
            1000,
            quota,
            Arc::<Memory>::default(),
            Arc::default(),
        );
        let (close, closing) = watch::channel(false);
        let running = tokio::spawn(scanner.run(Duration::from_secs(3600), closing));
        let removed = async {
            while names(&dir).len() > 10 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), removed).await.expect("it is removed");
        close.send_replace(true);
        running.await.unwrap();
        assert_eq!(names(&dir).len(), 10);
    }

    #[tokio::test]
    async fn a_round_takes_so_many_and_one_of_mail_alone_is_followed_by_the_next_at_once() {
        let dir = tempfile::tempdir().unwrap();
        drop_mail(&dir, FILES_A_ROUND + 1);
        let (closing, closes) = watch::channel(false);
        let mut drops = scanner(&dir);
        assert!(drops.round(&closes).await);
        assert_eq!(drops.target.submitted.lock().unwrap().len(), FILES_A_ROUND);
        closing.send_replace(true);
        assert!(!drops.round(&closes).await);
        assert_eq!(names(&dir).len(), 1, "a daemon that closes takes nothing in");
        closing.send_replace(false);
        assert!(!drops.round(&closes).await);
        assert!(names(&dir).is_empty());
    }

    #[tokio::test]
    async fn what_is_refused_for_good_goes_back_to_its_sender() {
        let dir = tempfile::tempdir().unwrap();
        drop_mail(&dir, 1);
        let (_open, closing) = watch::channel(false);
        let mut drops = scanner(&dir);
        *drops.target.refuse.lock().unwrap() = Some(Refusal::permanent("550 5.7.1 never"));
        drops.round(&closing).await;
        assert!(names(&dir).is_empty());
        assert_eq!(*drops.target.given_back.lock().unwrap(), ["550 5.7.1 never"]);
    }

    #[tokio::test]
    async fn what_is_no_file_is_removed_or_passed_over_and_the_mail_behind_it_is_taken_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("000.mail/full")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("001.mail"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("002.mail")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("003.mail")).unwrap();
        drop_mail(&dir, 2);
        let (_open, closing) = watch::channel(false);
        let mut drops = scanner(&dir);
        for _ in 0..3 {
            drops.round(&closing).await;
            drops.count_waiting().await;
        }
        assert_eq!(names(&dir), ["000.mail"]);
        let state = drops.waiting.lock().unwrap().clone();
        assert_eq!((drops.passed_over.len(), state.count, state.directories), (1, 0, 1));
        assert_eq!(state.directories_of, Some(rustix::process::geteuid().as_raw()));
    }

    #[tokio::test]
    async fn what_other_users_have_made_that_is_no_file_is_removed_whatever_its_name() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("full/x")).unwrap();
        fs::create_dir(path("empty")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink("/nonexistent", path("link.tmp")).unwrap();
        fs::write(path("file"), "").unwrap();
        for name in names(&dir) {
            std::os::unix::fs::lchown(path(&name), Some(1001), None).unwrap();
        }
        fs::create_dir(path("of-root")).unwrap();
        let mut drops = scanner(&dir);
        for _ in 0..2 {
            drops.remove_odd().await;
            assert_eq!(names(&dir), ["file", "full", "of-root"]);
            assert_eq!(drops.passed_over, [path("full")].into());
        }
    }

    #[tokio::test]
    async fn an_excess_is_removed_at_each_look() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota { messages: 5, bytes: 1000 };
        let target = Arc::<Memory>::default();
        let scanner = MaildropScanner::new(dir.path().to_owned(), 1000, quota, target, Arc::default());
        let (close, closing) = watch::channel(false);
        let running = tokio::spawn(scanner.run(Duration::from_millis(1), closing));
        for round in 0..3 {
            for number in 0..50 {
                let path = dir.path().join(format!("{round}-{number}.junk"));
                fs::write(&path, "").unwrap();
                std::os::unix::fs::chown(&path, Some(1001), None).unwrap();
            }
            let removed = async {
                while names(&dir).len() > 10 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), removed).await.expect("it is removed");
        }
        close.send_replace(true);
        running.await.unwrap();
    }

    #[tokio::test]
    async fn what_cannot_go_back_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        drop_mail(&dir, 2);
        let (_open, closing) = watch::channel(false);
        let target = Arc::new(Memory { keeps: true, ..Memory::default() });
        let mut drops = MaildropScanner::new(dir.path().to_owned(), 1000, QUOTA, target, Arc::default());
        *drops.target.refuse.lock().unwrap() = Some(Refusal::permanent("554 5.6.0 never"));
        assert!(!drops.round(&closing).await);
        assert_eq!(names(&dir), ["0000.mail.bad", "0001.mail.bad"]);
    }
}
