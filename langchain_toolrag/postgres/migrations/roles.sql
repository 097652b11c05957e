-- Who may do what; grant one of them to the user that processes connect as:
--     grant toolrag_writer to my_service;
-- Neither may change tables, nor empty one at a stroke, which would pass by the tenants' policies.
do $$
declare
    name text;
begin
    foreach name in array array['toolrag_reader', 'toolrag_writer'] loop
        begin
            execute format('create role %I nologin', name);
        exception when duplicate_object or unique_violation then
            null;  -- Roles are the whole server's: another database may have made them.
        end;
    end loop;
end
$$;

revoke all on schema toolrag from public;
grant usage on schema toolrag to toolrag_reader, toolrag_writer;
grant select on all tables in schema toolrag to toolrag_reader, toolrag_writer;
grant insert, update, delete on all tables in schema toolrag to toolrag_writer;
revoke insert, update, delete on toolrag.migrations from toolrag_writer;
