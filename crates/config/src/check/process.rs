//! Users that the daemon and deliveries run as: none is root, and none is one of the system by accident.

use super::Check;
use crate::{
    route::{DeliveryUser, Target},
    settings::Settings,
};

impl Check<'_, '_> {
    pub(super) fn process(&mut self, s: &Settings) {
        if s.process.user.as_ref().is_some_and(|user| user.uid == 0) {
            let what = "`process.user` is root".to_owned();
            let help = "name a separate user, such as \"postrider\"; without this key, the daemon stays root";
            self.problem("process.user", what, "has all rights", help);
        }
        if s.process.group.is_some() && s.process.user.is_none() && !self.has_failed("process.user") {
            let what = "`process.group` has no effect without `process.user`".to_owned();
            self.problem("process.group", what, "`user` is missing", "add `user` to [process]");
        }
        // Routes with problems are not in the settings: the name tells which one it is.
        for route in &s.routes {
            if let Target::Pipe(program) = &route.target
                && let Some(user) = &program.user
            {
                self.delivery_user("pipe", &user.name, user.uid, s);
            }
            if let Some(DeliveryUser::Fixed(user)) = route.deliver_as.as_ref().map(|own| &own.user) {
                self.delivery_user("user", &user.name, user.uid, s);
            }
        }
        if let Some(user) = s.acme.hook.as_ref().and_then(|hook| hook.user.as_ref()) {
            self.delivery_user("hook", &user.name, user.uid, s);
        }
        if let Some(user) = &s.addresses.program_user {
            self.delivery_user("program_user", &user.name, user.uid, s);
        }
    }

    /// Refuses root, and users of the system, with the key of this name that has the user.
    fn delivery_user(&mut self, key: &str, name: &str, uid: u32, s: &Settings) {
        if s.process.may_deliver_as(uid) {
            return;
        }
        let names_it = |value: &toml::Value| {
            value.as_str().or_else(|| value.get("user")?.as_str()).is_some_and(|text| text == name)
        };
        let found = self
            .reading
            .effective
            .iter()
            .find(|e| e.path.rsplit(['.']).next() == Some(key) && e.value.as_ref().is_some_and(names_it));
        let path = found.map_or(String::new(), |e| e.path.clone());
        let what = format!("mail is not delivered as {name} (uid {uid})");
        if uid == 0 {
            self.problem(&path, what, "root", "name an unprivileged user, such as \"vmail\"");
            return;
        }
        let least = s.process.min_uid;
        let help = format!("name another user, or write `min_uid = {uid}` in [process]");
        self.problem(&path, what, &format!("a system user: below {least}"), &help);
    }
}
