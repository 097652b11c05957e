-- Run once, when the database is made: the user that servers connect as. It owns nothing, so that
-- the tenants' policies count for it, and `toolrag db upgrade --roles` lets its role do the rest.
\set password `cat /run/secrets/server_password`
create role toolrag_writer nologin;
create role toolrag_server login password :'password' in role toolrag_writer;
