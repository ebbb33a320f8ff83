/* Two-phase commit as Twofold does it: one transaction over two participants, two lives of the
 * coordinator, and everything that may go wrong in between. README.md maps the names to the code;
 * the numbers are the rules of docs/rules.md.
 *
 * Every fault has a budget, and nothing is retried for ever, so the graph of states has no circle:
 * each run ends, and `at_the_end` says what must hold then. `check` proves that there is no circle.
 *
 * A mutant changes one condition: -DM_NAME. `check` shows that each is refuted. */

#define N 2

#ifndef BREAKS
#define BREAKS 2            /* links that are lost */
#endif
#ifndef PARTICIPANT_CRASHES
#define PARTICIPANT_CRASHES 1
#endif
#ifndef FAILED_SCANS
#define FAILED_SCANS 1
#endif

mtype = { start, commit, rollback, release, list };                 /* what a participant is asked */
mtype = { yes, no, rdonly, done, nota, lists_it, lists_none, failed };        /* what it answers */
mtype = { idle, preparing, releasing, deciding, committing, aborting, ended };   /* phases */
mtype = { none, started, voted_yes, voted_rdonly, unsure, sent, finished };      /* branches, as the coordinator knows them */
mtype = { running, reader, prepared, committing_queued, committed };             /* branches, where they are */
mtype = { nothing, told_committed, told_aborted };

/* ---- what lasts ---- */
bool record;                /* the commit record, durable */
bool in_record[N];          /* the branches that it names */
mtype disk[N] = none;       /* none, prepared, committed (an outcome row: evidence, 16) */

/* ---- the coordinator's memory ---- */
mtype phase = idle;
mtype branch[N] = none;
mtype asked[N];             /* the request that is open there; 0: none */
bool writing;               /* Persist is out: no way back (4) */
bool covered[N];            /* a complete scan of this session, begun after the end, lacked it (6) */
bool again[N];              /* the last scan failed */
bool reported[N];           /* left for a person */
bool below_floor;           /* its outcome was purged (6) */
bool older_copy;            /* the log was restored from a copy that may lack decisions (2) */

/* ---- a participant's memory ---- */
mtype here[N] = none;       /* none, running, reader, prepared, committing_queued */
bool locked[N];
bool rollback_queued[N];    /* answered, and not yet durable */
bool late[N];               /* a Start of a session that is gone, not looked at yet (15) */

/* ---- the network: one session each, one open request each ---- */
bool link[N];
chan to[N] = [1] of { mtype };
chan from[N] = [1] of { mtype };

/* ---- what only the proof knows ---- */
mtype told = nothing;
bool decided;               /* a commit record has been durable */
bool said_yes[N], said_rdonly[N];
bool undone[N];             /* a prepared branch was rolled back */
bool seen[N];               /* its writes could be read before its commit was durable (13) */
bool reader_lost[N];        /* its locks went before all had voted (11) */
bool may_release;           /* all have voted */
bool only_readers;

byte breaks = BREAKS, crashes = PARTICIPANT_CRASHES, failed_scans = FAILED_SCANS;
bool coordinator_crash = true, times_out = true;

#define other(i) (1 - (i))

inline ask(i, what) { to[i]!what; asked[i] = what }

inline tell(outcome) {
  assert(told == nothing || told == outcome || only_readers);
  told = outcome
}

/* ---- the coordinator decides ------------------------------------------------------------------- */

inline abort_it() {         /* never once Persist is out (4) */
  tell(told_aborted);
  phase = aborting;
  if :: branch[0] == none -> branch[0] = finished :: else fi;
  if :: branch[1] == none -> branch[1] = finished :: else fi
}

inline commit_record(i) { in_record[i] = (branch[i] == voted_yes) }

inline decide() {
  phase = deciding;
  commit_record(0); commit_record(1);
  writing = true;
#ifdef M_REPLY_BEFORE_DURABLE
  tell(told_committed);
#endif
#ifdef M_COMMIT_BEFORE_DURABLE
  phase = committing;
#endif
}

inline is_durable() {
  writing = false;
  record = true;
  decided = true;
  assert(!(said_rdonly[0] && reader_lost[0]) && !(said_rdonly[1] && reader_lost[1]));
  if
  :: phase == deciding -> phase = committing; tell(told_committed)
  :: else
  fi
}

/* A link is lost, as the coordinator sees it. Before all have finished only a prepared branch may
 * lose its session (11). */
inline lost_session(i) {
  asked[i] = 0; covered[i] = false; again[i] = false;
  if
#ifndef M_LOST_LINK_IGNORED
  :: phase == preparing && branch[i] != voted_yes ->
       branch[i] = unsure; abort_it()
  :: phase == releasing && branch[i] == voted_rdonly ->
       branch[i] = finished; abort_it()     /* it ended with its session */
#endif
  :: phase == committing && branch[i] != finished -> branch[i] = unsure
  :: phase == aborting && branch[i] != finished -> branch[i] = unsure
  :: else
  fi
}

/* What a complete or a failed scan of this session means (14). */
inline scanned(i, what) {
  if
  :: what == failed ->
#ifdef M_FAILED_SCAN_IS_EMPTY
       if :: phase == committing && branch[i] == unsure -> branch[i] = finished
          :: phase == aborting && branch[i] == unsure -> branch[i] = finished
          :: phase == ended -> covered[i] = true
          :: else
       fi
#else
       again[i] = true
#endif
  :: what == lists_none ->
       if
       :: phase == committing && branch[i] == unsure ->
            assert(disk[i] == committed);   /* evidence, or else a heuristic hazard (16) */
            branch[i] = finished
       :: phase == aborting && branch[i] == unsure -> branch[i] = finished
       :: phase == ended -> covered[i] = true
       :: else
       fi
  :: what == lists_it ->
       if
#ifdef M_UNDECIDED_ROLLED_BACK
       :: phase == preparing || phase == releasing || phase == deciding -> ask(i, rollback)
#else
       :: phase == preparing || phase == releasing || phase == deciding -> skip  /* left alone */
#endif
       :: phase == committing && branch[i] == unsure -> ask(i, commit); branch[i] = sent
       :: phase == aborting -> ask(i, rollback); branch[i] = sent
       :: phase == ended ->
            if
            :: below_floor -> reported[i] = true
            :: !below_floor && record && in_record[i] -> ask(i, commit)
            :: !below_floor && !record ->
#ifdef M_RESTORED_LOG_PRESUMES_ABORT
                 ask(i, rollback)
#else
                 if :: older_copy -> reported[i] = true
                    :: else -> ask(i, rollback)           /* presumed abort (4) */
                 fi
#endif
            :: else -> reported[i] = true
            fi
       :: else
       fi
  :: else
  fi
}

inline answered(i, what) {
  if
  :: asked[i] == start ->
       asked[i] = 0;
       if
       :: phase == preparing && what == yes -> branch[i] = voted_yes
       :: phase == preparing && what == rdonly -> branch[i] = voted_rdonly
       :: phase == preparing && what == no -> branch[i] = finished; abort_it()
       :: phase != preparing && what == no -> branch[i] = finished
       :: phase != preparing && what == yes -> branch[i] = voted_yes
       :: phase != preparing && what == rdonly -> branch[i] = voted_rdonly
       fi
  :: asked[i] == commit ->
       asked[i] = 0;
       assert(what != nota);                     /* only what a scan listed is asked to commit */
       if :: branch[i] == sent -> branch[i] = finished :: else fi
#ifdef M_FORGET_AFTER_THE_FIRST
       ; if :: phase == committing && branch[i] == finished -> phase = ended; record = false
            :: else
         fi
#endif
  :: asked[i] == rollback || asked[i] == release ->
       asked[i] = 0;
       if :: branch[i] == sent || branch[i] == voted_rdonly -> branch[i] = finished :: else fi
  :: asked[i] == list -> asked[i] = 0; scanned(i, what)
  fi
}

#define all_voted ((branch[0] == voted_yes || branch[0] == voted_rdonly) && \
                   (branch[1] == voted_yes || branch[1] == voted_rdonly))
#define all_finished (branch[0] == finished && branch[1] == finished)
#define free(i) (link[i] && !asked[i])

inline next_of(i) {         /* what is to be said to a participant now */
  if
  :: phase == committing && branch[i] == voted_yes -> ask(i, commit); branch[i] = sent
  :: phase == aborting && (branch[i] == voted_yes || branch[i] == voted_rdonly) ->
       ask(i, rollback); branch[i] = sent
  :: phase == releasing && branch[i] == voted_rdonly -> ask(i, release)
  :: phase == ended && !covered[i] && !reported[i] -> ask(i, list)
  :: again[i] && phase != ended -> again[i] = false; ask(i, list)
  fi
}
#define has_next(i) ((phase == committing && branch[i] == voted_yes) || \
                     (phase == aborting && (branch[i] == voted_yes || branch[i] == voted_rdonly)) || \
                     (phase == releasing && branch[i] == voted_rdonly) || \
                     (phase == ended && !covered[i] && !reported[i]) || (again[i] && phase != ended))

active proctype coordinator() {
  mtype what;
end:
  do
  :: atomic { phase == idle && free(0) && free(1) ->
       phase = preparing;
       branch[0] = started; ask(0, start);
       branch[1] = started; ask(1, start) }
  :: atomic { from[0]?what -> answered(0, what); what = 0 }
  :: atomic { from[1]?what -> answered(1, what); what = 0 }
  :: atomic { free(0) && has_next(0) -> next_of(0) }
  :: atomic { free(1) && has_next(1) -> next_of(1) }

  :: atomic { phase == preparing && all_voted ->
       may_release = true;
       if
       :: branch[0] == voted_yes && branch[1] == voted_yes -> decide()
       :: else ->
            phase = releasing;
#ifdef M_RELEASE_IS_NOT_AWAITED
            if :: branch[0] == voted_yes || branch[1] == voted_yes -> decide() :: else fi
#endif
       fi }
  :: atomic { phase == releasing && branch[0] != voted_rdonly && branch[1] != voted_rdonly ->
       if
       :: branch[0] == voted_yes || branch[1] == voted_yes -> decide()
       :: else -> only_readers = true; tell(told_committed); phase = ended   /* no record (5) */
       fi }
  :: atomic { writing -> is_durable() }

  :: atomic { times_out && (phase == preparing || phase == releasing
#ifdef M_TIMEOUT_AFTER_PERSIST
              || phase == deciding
#endif
              ) -> times_out = false;
       branch[0] = (branch[0] == started -> unsure : branch[0]);
       branch[1] = (branch[1] == started -> unsure : branch[1]);
       abort_it() }
  :: atomic { (phase == committing || phase == aborting) && all_finished -> phase = ended }
  :: atomic { phase == ended && covered[0] && covered[1] && !below_floor ->
       below_floor = true; record = false }       /* the floor passes it (6) */
  od
}

/* ---- a participant ----------------------------------------------------------------------------- */

inline reader_ends(i) {     /* without Release */
  if :: here[i] == reader ->
          here[i] = none; locked[i] = false;
          if :: !may_release || phase == releasing -> reader_lost[i] = true :: else fi
     :: else
  fi
}

inline begin_branch(i) {
  if
  :: from[i]!no
  :: here[i] = reader; locked[i] = true; said_rdonly[i] = true;
#ifdef M_READER_RELEASES_AT_ITS_VOTE
     locked[i] = false; here[i] = none;
     if :: !(branch[other(i)] == voted_yes || branch[other(i)] == voted_rdonly) -> reader_lost[i] = true
        :: else
     fi;
#endif
     from[i]!rdonly
  :: here[i] = running; locked[i] = true;
#ifdef M_VOTE_BEFORE_DURABLE
     said_yes[i] = true; from[i]!yes
#endif
  fi
}

active [N] proctype participant() {
  byte i = _pid - 1;        /* the coordinator is 0 */
end:
  do
  :: atomic { to[i]?start -> begin_branch(i) }
  :: atomic { here[i] == running ->              /* its write is durable: only now may it vote */
       here[i] = prepared; disk[i] = prepared; said_yes[i] = true;
#ifdef M_LOCKS_FREED_AT_THE_VOTE
       seen[i] = true;
#endif
#ifndef M_VOTE_BEFORE_DURABLE
       if :: link[i] && asked[i] == start -> from[i]!yes :: else fi
#endif
       }
  :: atomic { to[i]?commit ->
       if
       :: here[i] == prepared ->                 /* early release (13): its prepare is durable */
            locked[i] = false; seen[i] = true; here[i] = committing_queued
       :: else -> from[i]!nota
       fi }
  :: atomic { here[i] == committing_queued ->
       assert(said_yes[i] && (said_yes[other(i)] || said_rdonly[other(i)]) && !undone[other(i)]);
       here[i] = none; disk[i] = committed;
       if :: link[i] && asked[i] == commit -> from[i]!done :: else fi }
  :: atomic { to[i]?rollback ->
       if
       :: here[i] == prepared ->
            assert(!decided && !seen[i]);
            here[i] = none; locked[i] = false; undone[i] = true; rollback_queued[i] = true
       :: here[i] == reader -> here[i] = none; locked[i] = false
       :: else
       fi;
       from[i]!done }
  :: atomic { rollback_queued[i] -> rollback_queued[i] = false; disk[i] = none }
  :: atomic { to[i]?release ->
       if :: here[i] == reader -> here[i] = none; locked[i] = false :: else fi;
       from[i]!done }
#ifdef M_SCAN_BEFORE_ROLLBACKS_ARE_DURABLE
  :: atomic { to[i]?[list] && here[i] != running && here[i] != committing_queued ->
#else
  :: atomic { to[i]?[list] && here[i] != running && here[i] != committing_queued && !rollback_queued[i] ->
#endif
       to[i]?list;
       if
       :: failed_scans > 0 -> failed_scans--; from[i]!failed
       :: here[i] == prepared -> from[i]!lists_it
       :: here[i] != prepared -> from[i]!lists_none
       fi }
  /* A Start of a session that is gone is run, if no newer session has come; else never (15). */
  :: atomic { late[i] && !link[i] && here[i] == none -> late[i] = false; here[i] = running; locked[i] = true }
#ifdef M_NO_FENCE
  :: atomic { late[i] && link[i] && here[i] == none && !rollback_queued[i] && disk[i] == none ->
       late[i] = false; here[i] = running; locked[i] = true }
#endif
  od
}

/* ---- what goes wrong, and is repaired ---------------------------------------------------------- */

inline cut(i) {             /* what was on its way is lost; a Start perhaps only delayed */
  link[i] = false;
  if
  :: to[i]?[start] -> if :: late[i] = true :: skip fi; to[i]?_
  :: to[i]?[commit] || to[i]?[rollback] || to[i]?[release] || to[i]?[list] -> to[i]?_
  :: else
  fi;
  if :: nfull(from[i]) :: full(from[i]) -> from[i]?_ fi;
  reader_ends(i)
}

inline participant_dies(i) {
  late[i] = false; rollback_queued[i] = false;
  here[i] = (disk[i] == prepared -> prepared : none);
#ifdef M_LOCKS_NOT_RETAKEN
  locked[i] = false
#else
  locked[i] = (disk[i] == prepared)              /* before it serves (11) */
#endif
}

inline session_opens(i) {
  link[i] = true;
#ifndef M_NO_FENCE
  late[i] = false;          /* verbs of an older session are not run any more */
#endif
  ask(i, list)
}

inline recover_branch(i) { branch[i] = (record && in_record[i] -> unsure : finished) }

active proctype world() {
end:
  do
  /* A session opens once the old one's verbs have ended, and begins with a scan (14, 15). */
  :: atomic { !link[0] && here[0] != running && here[0] != committing_queued ->
       session_opens(0) }
  :: atomic { !link[1] && here[1] != running && here[1] != committing_queued ->
       session_opens(1) }
  :: atomic { link[0] && breaks > 0 -> breaks--; cut(0); lost_session(0) }
  :: atomic { link[1] && breaks > 0 -> breaks--; cut(1); lost_session(1) }
  :: atomic { crashes > 0 -> crashes--;
       if :: link[0] -> cut(0); lost_session(0) :: else fi; participant_dies(0) }
  :: atomic { crashes > 0 -> crashes--;
       if :: link[1] -> cut(1); lost_session(1) :: else fi; participant_dies(1) }
  :: atomic { coordinator_crash -> coordinator_crash = false;
       if :: link[0] -> cut(0) :: else fi;
       if :: link[1] -> cut(1) :: else fi;
       asked[0] = 0; asked[1] = 0; covered[0] = false; covered[1] = false;
       again[0] = false; again[1] = false;
       if                                        /* what was being written may be there, or not */
       :: writing -> record = true; decided = true
       :: skip
       fi;
       writing = false;
       if                                        /* an older copy of the log is put in its place */
       :: record -> record = false; older_copy = true
       :: skip
       fi;
       recover_branch(0); recover_branch(1);
       phase = (record -> committing : ended);
       if
       :: record -> tell(told_committed)
       :: !record && !older_copy && !below_floor -> tell(told_aborted)    /* presumed (8) */
       :: else
       fi }
  od
}

/* ---- what must hold ---------------------------------------------------------------------------- */

#define locks_follow(i) ((here[i] == prepared || here[i] == running || here[i] == reader) == locked[i])

active proctype at_the_end() {
  timeout ->                /* nothing more can happen */
  assert(phase == ended || phase == idle);
  assert(!writing && locks_follow(0) && locks_follow(1));
  assert(here[0] == none || (reported[0] && older_copy));
  assert(here[1] == none || (reported[1] && older_copy));
  assert(!(disk[0] == committed && undone[1]) && !(disk[1] == committed && undone[0]));
  assert(told != told_aborted || (disk[0] != committed && disk[1] != committed));
  assert(told != told_committed || only_readers || older_copy ||
         ((disk[0] == committed || said_rdonly[0]) && (disk[1] == committed || said_rdonly[1])))
}
