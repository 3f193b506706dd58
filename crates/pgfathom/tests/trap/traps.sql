-- Objects that a plain role has put into a schema on the search path: the like of every function, aggregate, operator, type and relation of
-- pg_catalog. Each of them, if it is used, ends the statement with an error that begins with "trap:", and so stands in the server's log.
-- The schema is searched before pg_catalog, so even what has the very same arguments is found first. In public, which is searched after it
-- where nobody says otherwise, are better matches: varchar for text, integer for bigint.

create schema hall;
create role mallory;
create schema evil authorization mallory;
grant all on schema public to mallory;
set role mallory;

create function evil.spring(what pg_catalog.text) returns pg_catalog.bool language plpgsql volatile
    as $$ begin raise exception 'trap: %', what; end $$;

do $make$
declare
    one pg_catalog.record;
    body constant pg_catalog.text := 'begin raise exception ''trap: %%'', %L; end';
    planted pg_catalog.int4 := 0;
    refused pg_catalog.int4 := 0;
    target pg_catalog.text;
    arguments pg_catalog.text;
begin
    for one in
        select p.oid, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) as named,
               (select coalesce(pg_catalog.string_agg(pg_catalog.format_type(t, null), ', ' order by n), '')
                from unnest(p.proargtypes) with ordinality as a (t, n)) as arguments,
               pg_catalog.format_type(p.prorettype, null) as result, p.proretset, p.prokind, p.pronargs
        from pg_catalog.pg_proc p join pg_catalog.pg_namespace s on s.oid = p.pronamespace
        where s.nspname = 'pg_catalog' and p.prokind in ('f', 'a') and p.provariadic = 0
    loop
        foreach target in array array['evil', 'public'] loop
            arguments := one.arguments;
            if target = 'public' then
                arguments := pg_catalog.replace(pg_catalog.replace(arguments, 'text', 'character varying'), 'bigint', 'integer');
                continue when arguments = one.arguments;
            end if;
            begin
                if one.prokind = 'f' then
                    execute pg_catalog.format('create function %I.%I(%s) returns %s%s language plpgsql as %L', target, one.proname, arguments,
                        case when one.proretset then 'setof ' else '' end, one.result,
                        pg_catalog.format(body, target || '.' || one.proname));
                else
                    execute pg_catalog.format('create function %I.%I(pg_catalog.int8%s) returns pg_catalog.int8 language plpgsql as %L', target,
                        'step_' || one.oid, case when arguments = '' then '' else ', ' || arguments end,
                        pg_catalog.format(body, target || '.' || one.proname));
                    execute pg_catalog.format('create aggregate %I.%I(%s) (sfunc = %I.%I, stype = pg_catalog.int8, initcond = ''0'')', target,
                        one.proname, case when arguments = '' then '*' else arguments end, target, 'step_' || one.oid);
                end if;
                planted := planted + 1;
            exception when others then
                -- Pseudo-types that no function of a user may have.
                refused := refused + 1;
            end;
        end loop;
    end loop;
    for one in
        select o.oid, o.oprname, o.oprleft, pg_catalog.format_type(o.oprleft, null) as l, pg_catalog.format_type(o.oprright, null) as r,
               pg_catalog.format_type(o.oprresult, null) as result
        from pg_catalog.pg_operator o join pg_catalog.pg_namespace s on s.oid = o.oprnamespace where s.nspname = 'pg_catalog'
    loop
        foreach target in array array['evil', 'public'] loop
            arguments := case when one.oprleft = 0 then '' else one.l || ', ' end || one.r;
            if target = 'public' then
                continue when one.r <> 'bigint' and one.r <> 'text' or one.oprleft = 0;
                one.r := case one.r when 'text' then 'character varying' else 'integer' end;
                arguments := one.l || ', ' || one.r;
            end if;
            begin
                execute pg_catalog.format('create function %I.%I(%s) returns %s language plpgsql as %L', target, 'operator_' || one.oid,
                    arguments, one.result, pg_catalog.format(body, target || ' operator ' || one.oprname));
                execute pg_catalog.format('create operator %I.%s (%s rightarg = %s, function = %I.%I)', target, one.oprname,
                    case when one.oprleft = 0 then '' else 'leftarg = ' || one.l || ',' end, one.r, target, 'operator_' || one.oid);
                planted := planted + 1;
            exception when others then
                refused := refused + 1;
            end;
        end loop;
    end loop;
    for one in
        select t.typname from pg_catalog.pg_type t join pg_catalog.pg_namespace s on s.oid = t.typnamespace
        where s.nspname = 'pg_catalog' and t.typtype = 'b' and t.typname not like '\_%'
    loop
        begin
            execute pg_catalog.format('create domain evil.%I as pg_catalog.%I check (evil.spring(%L::pg_catalog.text))', one.typname, one.typname,
                'evil type ' || one.typname);
            planted := planted + 1;
        exception when others then
            refused := refused + 1;
        end;
    end loop;
    for one in
        select c.relname, (select pg_catalog.string_agg(pg_catalog.format('null::%s as %I', pg_catalog.format_type(a.atttypid, null), a.attname), ', '
                                                        order by a.attnum)
                           from pg_catalog.pg_attribute a
                           where a.attrelid = c.oid and a.attnum > 0 and a.atttypid::pg_catalog.regtype::pg_catalog.text not in ('anyarray')) as columns
        from pg_catalog.pg_class c join pg_catalog.pg_namespace s on s.oid = c.relnamespace
        where s.nspname = 'pg_catalog' and c.relkind in ('r', 'v')
    loop
        begin
            execute pg_catalog.format('create view evil.%I as select %s where evil.spring(%L::pg_catalog.text)', one.relname, one.columns,
                'evil relation ' || one.relname);
            planted := planted + 1;
        exception when others then
            refused := refused + 1;
        end;
    end loop;
    foreach target in array array['usertable', 'warehouse', 'district', 'customer', 'history', 'orders', 'new_order', 'order_line', 'item', 'stock',
                                  'dataset', 'chunk', 'object', 'writer', 'tpcc', 'pg_stat_statements', 'pg_stat_kcache', 'pg_wait_sampling_profile']
    loop
        execute pg_catalog.format('create view evil.%I as select 1 as one where evil.spring(%L::pg_catalog.text)', target, 'evil relation ' || target);
        planted := planted + 1;
    end loop;
    create collation evil."C" from pg_catalog."C";
    create type evil.planted as (planted pg_catalog.int4, refused pg_catalog.int4);
    execute pg_catalog.format('create function evil.count_of_traps() returns pg_catalog.int4 language sql as %L', 'select ' || planted);
end
$make$;
create function evil.pg_stat_statements(pg_catalog.bool) returns table (queryid pg_catalog.int8) language plpgsql
    as $$ begin raise exception 'trap: pg_stat_statements'; end $$;
reset role;
