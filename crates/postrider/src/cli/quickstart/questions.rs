//! The questions of `postrider quickstart`. An answer that cannot be used is asked for again.

use super::{Answers, Certificate, CliError, LETS_ENCRYPT, QuickstartArgs, complain};
use config::certificate as certificate_file;
use control::Exit;
use mail::{Domain, Mailbox};
use std::{
    fs,
    io::{BufRead, Write},
    path::{Path, PathBuf},
};

/// A question to the operator, with the check of the answer.
struct Question<'q> {
    text: &'q str,
    /// Taken for an empty line.
    usual: &'q str,
    check: fn(&str) -> Result<String, String>,
    /// The doubt about an answer that can be used. A person who gives the same answer again gets it.
    doubt: fn(&str) -> Option<String>,
}

/// The person at the terminal, and the screen.
struct Asker<'i, 'o> {
    /// None if nobody can answer.
    input: Option<&'i mut dyn BufRead>,
    out: &'o mut dyn Write,
}

impl Asker<'_, '_> {
    /// Returns what was given by options, or else the answer, in the checked form.
    fn ask(&mut self, given: &[String], question: &Question<'_>) -> Result<Vec<String>, CliError> {
        let mut doubted: Option<Vec<String>> = None;
        loop {
            let is_asked = given.is_empty() && self.input.is_some();
            let words = match given {
                [] if is_asked => self.answer(question.text, question.usual)?,
                [] => split(question.usual),
                given => given.to_vec(),
            };
            let checked = words.iter().map(|word| (question.check)(word)).collect::<Result<Vec<_>, _>>();
            let checked = match checked {
                Ok(checked) => checked,
                Err(why) if is_asked => {
                    writeln!(self.out, "{why}")?;
                    continue;
                }
                Err(why) => return Err(CliError::new(Exit::Usage, why)),
            };
            let doubts: Vec<String> = checked.iter().filter_map(|word| (question.doubt)(word)).collect();
            if doubts.is_empty() || doubted.as_ref() == Some(&checked) {
                return Ok(checked);
            }
            if !is_asked {
                doubts.iter().for_each(|doubt| complain("postrider", &format!("warning: {doubt}")));
                return Ok(checked);
            }
            writeln!(self.out, "{}. To keep this answer, give it again.", doubts.join("; "))?;
            doubted = Some(checked);
        }
    }

    /// Returns the words of one answer; of an empty line the usual ones.
    fn answer(&mut self, question: &str, usual: &str) -> Result<Vec<String>, CliError> {
        match usual {
            "" => write!(self.out, "{question}: ")?,
            usual => write!(self.out, "{question} [{usual}]: ")?,
        }
        self.out.flush()?;
        let mut line = String::new();
        let read = self.input.as_deref_mut().map_or(Ok(0), |input| input.read_line(&mut line))?;
        if read == 0 {
            return Err(CliError::new(Exit::NoInput, "the answers have ended: nothing was written"));
        }
        let words = split(&line);
        Ok(if words.is_empty() { split(usual) } else { words })
    }

    fn hostname(&mut self, given: Option<&String>) -> Result<String, CliError> {
        let machine = config::machine_name();
        let given: Vec<String> = given.into_iter().cloned().collect();
        let mut text = "The name of this server in DNS";
        loop {
            let question = Question { text, usual: &machine, check: host, doubt: short_name };
            let mut hosts = self.ask(&given, &question)?;
            match hosts.len() {
                1 => return Ok(hosts.remove(0)),
                _ if self.input.is_none() => {
                    return Err(CliError::new(Exit::Usage, "name this server by --hostname"));
                }
                _ => text = "The name of this server in DNS, one",
            }
        }
    }

    fn certificate(&mut self, args: &QuickstartArgs) -> Result<Certificate, CliError> {
        if let (Some(chain), Some(key)) = (&args.certificate, &args.key) {
            let words = [chain.display().to_string(), key.display().to_string()];
            return certificate(&words).map_err(|why| CliError::new(Exit::NoInput, why));
        }
        if args.acme {
            return Ok(Certificate::LetsEncrypt);
        }
        while self.input.is_some() {
            let words = self.answer(
                "Files with the certificate's chain and its key; `letsencrypt` to obtain one, if you accept the terms of \
                 service of letsencrypt.org; empty for a self-signed one",
                "",
            )?;
            match certificate(&words) {
                Ok(certificate) => return Ok(certificate),
                Err(why) => writeln!(self.out, "{why}")?,
            }
        }
        Ok(Certificate::SelfSigned)
    }
}

impl Answers {
    /// Takes the options, and asks for the others if somebody can answer.
    pub(super) fn find(
        args: &QuickstartArgs,
        input: Option<&mut dyn BufRead>,
        out: &mut dyn Write,
    ) -> Result<Self, CliError> {
        let mut asker = Asker { input, out };
        let no_doubt: fn(&str) -> Option<String> = |_| None;
        let hostname = asker.hostname(args.hostname.as_ref())?;
        // Of mx.example.com, example.com; a name of two labels is a domain itself.
        let usual = match hostname.split_once('.') {
            Some((_, domain)) if domain.contains('.') => domain.to_owned(),
            _ => hostname.clone(),
        };
        let text = "Domains whose mail arrives here";
        let question = Question { text, usual: &usual, check: host, doubt: no_doubt };
        let domains = asker.ask(&args.domain, &question)?;
        let text = "Networks whose clients may send to all domains, besides this machine";
        let question = Question { text, usual: "", check: network, doubt: no_doubt };
        let networks = asker.ask(&args.network, &question)?;
        let text = "Users who log in to send, such as jane or jane@example.com";
        let question = Question { text, usual: "", check: user, doubt: login_of_root };
        let users = asker.ask(&args.user, &question)?;
        let mut known = std::collections::HashSet::new();
        let users: Vec<String> = users.into_iter().filter(|user| known.insert(user.clone())).collect();
        let certificate = asker.certificate(args)?;
        Ok(Self { hostname, domains, networks, users, certificate })
    }
}

fn certificate(words: &[String]) -> Result<Certificate, String> {
    match words {
        [] => Ok(Certificate::SelfSigned),
        [word] if word == LETS_ENCRYPT => Ok(Certificate::LetsEncrypt),
        [chain, key] => {
            let (chain, key) = (existing(chain)?, existing(key)?);
            fit(&chain, &key)?;
            Ok(Certificate::Files(chain, key))
        }
        _ => Err("name two files: the chain, and the key".to_owned()),
    }
}

/// Makes sure that the files are a certificate and its key, as far as this user may read them.
fn fit(chain: &Path, key_file: &Path) -> Result<(), String> {
    if fs::File::open(chain).is_err() || fs::File::open(key_file).is_err() {
        return Ok(());
    }
    let words = |unusable: certificate_file::Unusable| unusable.to_string();
    let chain = certificate_file::chain(chain).map_err(words)?;
    let key = certificate_file::key(key_file).map_err(words)?;
    certificate_file::pair(chain, key, key_file).map(drop).map_err(words)
}

/// Returns the absolute name of a file that is there.
fn existing(file: &str) -> Result<PathBuf, String> {
    let path = std::path::absolute(file).map_err(|e| format!("read {file}: {e}"))?;
    match fs::metadata(&path) {
        Ok(data) if data.is_file() => Ok(path),
        Ok(_) => Err(format!("read {}: it is not a file", path.display())),
        Err(error) => Err(format!("read {}: {error}", path.display())),
    }
}

fn split(text: &str) -> Vec<String> {
    text.split([',', ' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn host(text: &str) -> Result<String, String> {
    match Domain::parse(text) {
        Ok(domain) if !text.starts_with('[') => Ok(domain.key().to_string()),
        _ => Err(format!("`{text}` is not a host name: write mx.example.com")),
    }
}

fn short_name(host: &str) -> Option<String> {
    (!host.contains('.')).then(|| {
        format!(
            "`{host}` has no dot: other servers refuse such a name; write the whole name, {host}.example.com"
        )
    })
}

fn network(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is not a network: write 192.0.2.0/24 or 2001:db8::/32");
    let network = match text.parse::<std::net::IpAddr>() {
        Ok(address) => ipnet::IpNet::from(address),
        Err(_) => text.parse().map_err(|_| wrong())?,
    };
    if network.prefix_len() == 0 {
        return Err(format!("`{text}` is the whole Internet: every sender of spam could use this server"));
    }
    Ok(network.trunc().to_string())
}

fn user(text: &str) -> Result<String, String> {
    let address = if text.contains('@') { text.to_owned() } else { format!("{text}@example.com") };
    let is_name = |name: &str| !name.contains([':', '"', '\'', '\\', '/']) && !name.contains("..");
    match Mailbox::parse(&address, true) {
        Ok(_) if is_name(text) => Ok(text.to_lowercase()),
        _ => Err(format!("`{text}` cannot be a user: write jane or jane@example.com")),
    }
}

fn login_of_root(user: &str) -> Option<String> {
    let name = user.split('@').next().unwrap_or_default();
    (name == "root").then(|| {
        format!("`{user}`: strangers try passwords of root first; name a person, and write `root: NAME` into /etc/aliases")
    })
}
