use super::*;

fn said(url: &str) -> String {
    let UrlFault { message, hint } = check(url).unwrap_err();
    format!("{message}; {hint}")
}

#[test]
fn urls_that_the_driver_reads_are_accepted() {
    for good in [
        "postgres://me:secret@host/db",
        "postgresql://me:p%40ss%3Aw%2Fo@127.0.0.1:5432/x?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgres://me:p@ssw0rd@host:5432/db",
        "postgres://me:100%@[::1]:5432/db",
        "postgres:///db?host=/run/postgresql&user=me@tenant&password=p%26w",
        "postgres://%2Frun%2Fpostgresql/db",
        "postgres://host",
        "postgres://host:/db?",
        "postgres://h/db?options[search_path]=x&options=-c%20a%3Db&application_name=r",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
}

/// If a special character in a password is not percent-encoded, the password appears to end at that
/// character.
#[test]
fn special_characters_that_are_not_encoded_are_named_without_the_password() {
    for bad in [
        "postgres://rw:p@S3CR:w/o@127.0.0.1:5432/x",
        "postgres://rw:S3CR/w@127.0.0.1/x",
        "postgres://rw:12/S3CR@127.0.0.1/x",
        "postgres://rw:12#S3CR@127.0.0.1/x",
        "postgres://rw:12?S3CR@127.0.0.1/x",
        "postgres://rw:12?S3CR=a@127.0.0.1/x",
        "postgres://rw:S3CR%FF@127.0.0.1/x",
        "postgres://rw:S3CR@/x",
        "postgres://:5432/x",
        "postgres://[S3CR]/x",
        "postgres://host:S3CR/x",
    ] {
        let said = said(bad);
        assert!(said.contains("percent-encode") && !said.contains("S3CR"), "{bad}: {said}");
    }
}

#[test]
fn a_url_with_several_hosts_is_refused_and_says_so() {
    for bad in ["postgres://u:S3CR@a,b/x", "postgres://u:S3CR@a:5432,b:5432/x"] {
        let said = said(bad);
        assert!(said.contains("several hosts") && !said.contains("S3CR"), "{bad}: {said}");
    }
}

/// Messages show the path of a SQLite file, so a URL must not be accepted as a path.
#[test]
fn a_url_behind_sqlite_is_refused_without_its_password() {
    for bad in ["sqlite:postgres://u:S3CR@h/db", "sqlite:d/postgres://u:S3CR@h/db"] {
        let fault = parse_database(bad, Path::new("/etc")).unwrap_err();
        assert!(fault.message.contains("both") && !format!("{fault:?}").contains("S3CR"));
    }
}

/// Unknown parameters are refused, because the driver would log their values at each attempt to
/// connect.
#[test]
fn unknown_parameters_are_refused_by_name_and_without_their_values() {
    for (query, named) in [
        ("sslpassword=S3CR", "sslpassword"),
        ("sslmode=require&passwrd=S3CR", "passwrd"),
        ("S3CR", "an unknown parameter"),
        ("S3CR%21=1", "an unknown parameter"),
        ("options[S3CR=1", "an unknown parameter"),
        ("sslmode=S3CR", "sslmode"),
        ("port=S3CR", "port"),
        ("hostaddr=S3CR", "hostaddr"),
        ("statement-cache-capacity=S3CR", "statement-cache-capacity"),
    ] {
        let said = said(&format!("postgres://u:pw@host/db?{query}"));
        assert!(said.contains(named) && !said.contains("S3CR"), "{query}: {said}");
    }
}
