-- The tables of PostfixAdmin that Postrider and Dovecot read, with the columns that they need. PostfixAdmin makes these tables itself:
-- run this only if you do without it.
CREATE TABLE domain (
  domain varchar(255) NOT NULL PRIMARY KEY,
  backupmx tinyint(1) NOT NULL DEFAULT 0,
  active tinyint(1) NOT NULL DEFAULT 1
);
CREATE TABLE alias_domain (
  alias_domain varchar(255) NOT NULL PRIMARY KEY,
  target_domain varchar(255) NOT NULL,
  active tinyint(1) NOT NULL DEFAULT 1
);
CREATE TABLE mailbox (
  username varchar(255) NOT NULL PRIMARY KEY,
  password varchar(255) NOT NULL,
  maildir varchar(255) NOT NULL,
  quota bigint(20) NOT NULL DEFAULT 0,
  domain varchar(255) NOT NULL,
  active tinyint(1) NOT NULL DEFAULT 1
);
-- Each mailbox has an alias that leads to itself; `@example.com` gets what no other address of the domain gets.
CREATE TABLE alias (
  address varchar(255) NOT NULL PRIMARY KEY,
  goto text NOT NULL,
  domain varchar(255) NOT NULL,
  active tinyint(1) NOT NULL DEFAULT 1
);
