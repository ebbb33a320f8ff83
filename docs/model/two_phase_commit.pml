/* Two-phase commit as Twofold does it: one transaction over two participants, two lives of the
 * coordinator, and everything that may go wrong in between. README.md maps the names to the code;
 * the numbers are the rules of docs/rules.md.
 *
 * Every fault has a budget, and nothing is retried for ever, so the graph of states has no circle:
 * each run ends, and `at_the_end` says what must hold then. `check` proves that there is no circle.
 *
 * A mutant changes one condition: -DM_NAME. `check` shows that each is refuted, and prints the comment
 * behind the assertion that refutes it. A line that no run reaches says why: `check` compares. */

#define N 2

#ifndef BREAKS
#define BREAKS 2            /* links that are lost */
#endif
#ifndef PARTICIPANT_CRASHES
#define PARTICIPANT_CRASHES 1
#endif
#ifndef ODD_SCANS
#define ODD_SCANS 1         /* that fail, or list a branch as busy; others wait until its verb has ended */
#endif

mtype = { start, commit, rollback, release, list };                 /* what a participant is asked */
mtype = { yes, no, rdonly, done, nota, lists_it, lists_busy, lists_none, failed };   /* what it answers */
mtype = { idle, preparing, releasing, deciding, committing, aborting, ended };   /* phases */
mtype = { none, started, voted_yes, voted_rdonly, unsure, sent, finished };      /* branches, as the coordinator knows them */
mtype = { running, reader, prepared, committing_queued, committed };             /* branches, where they are */
mtype = { nothing, told_committed, told_aborted };
mtype = { intact, older_copy, unknown };         /* what the second life's log is to the transaction's epoch */

/* ---- what lasts ---- */
mtype log = intact;         /* the log itself; the transaction was begun in the first epoch (1, 2) */
bool record;                /* the commit record, durable */
bool in_record[N];          /* the branches that it names */
bool heuristic[N];          /* the heuristic record of a branch, durable (17) */
bool below_floor;           /* its outcome was purged (6) */
mtype disk[N] = none;       /* none, prepared, committed (an outcome row: evidence, 16) */

/* ---- the coordinator's memory ---- */
mtype phase = idle;
mtype branch[N] = none;
mtype asked[N];             /* the request that is open there; 0: none */
bool writing;               /* Persist is out: no way back (4) */
bool covered[N];            /* a complete scan of this session, begun after the end, lacked it (6) */
bool again[N];              /* a scan is wanted: the last one failed or listed it as busy, or a commit met nothing */
bool reported[N];           /* left for a person */

/* ---- a participant's memory ---- */
mtype here[N] = none;       /* none, running, reader, prepared, committing_queued */
bool locked[N];
bool rollback_queued[N];    /* answered, and not yet durable */
bool late[N];               /* a Start of a session that is gone, not looked at yet (15) */

/* ---- the network: one session each, one open request each ---- */
bool link[N];               /* as the coordinator sees it */
bool dead[N];               /* it is lost, and the coordinator has not noticed yet */
chan to[N] = [1] of { mtype };
chan from[N] = [1] of { mtype };

/* ---- what only the proof knows ---- */
mtype told = nothing;
bool decided;               /* a commit record has been durable */
bool said_yes[N], said_rdonly[N];
bool undone[N];             /* a prepared branch was rolled back */
bool by_hand[N];            /* a person rolled it back, behind the coordinator's back */
bool seen[N];               /* its writes could be read before its commit was durable (13) */
bool reader_lost[N];        /* its locks went before all had finished their work (11) */
bool only_readers;

byte breaks = BREAKS, crashes = PARTICIPANT_CRASHES, odd_scans = ODD_SCANS;
bool coordinator_crash = true, times_out = true, store_full = true, person_acts = true;

#define other(i) (1 - (i))

#define connected(i) (link[i] && !dead[i])

inline ask(i, what) {       /* nobody hears it if the link is dead */
  asked[i] = what;
  if :: !dead[i] -> to[i]!what :: else fi
}

inline tell(outcome) {
  assert(told == nothing || told == outcome || only_readers);      /* a reply stays true (5, 8) */
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

inline readers_held() {
  assert(!reader_lost[0] && !reader_lost[1])                       /* readers held their locks (11) */
}

inline is_durable() {
  writing = false;
  record = true;
  decided = true;
  readers_held();
  if
  :: phase == deciding -> phase = committing; tell(told_committed)
  :: else
  fi
}

inline is_refused() {       /* certainly not written: the only way back (4, 23) */
  writing = false;
#ifdef M_UNCERTAIN_WRITE_IS_REFUSED
  if :: record = true; decided = true :: skip fi;
#endif
  abort_it()
}

inline hang_up(i) {
  link[i] = false; dead[i] = false;
  if :: nfull(from[i]) :: full(from[i]) -> from[i]?_ fi;           /* an answer on its way is lost */
  asked[i] = 0; covered[i] = false; again[i] = false
}

/* A link is lost, as the coordinator sees it. Before all have finished only a prepared branch may
 * lose its session (11). */
inline lost_session(i) {
  hang_up(i);
  if
#ifndef M_LOST_LINK_IGNORED
  :: phase == preparing && branch[i] != voted_yes ->
       branch[i] = unsure; abort_it()
  :: phase == releasing && branch[i] == voted_rdonly ->
       branch[i] = finished; abort_it()     /* it ended with its session */
#endif
#ifdef M_RELEASE_IS_NOT_AWAITED
  :: phase == committing && branch[i] == voted_rdonly -> branch[i] = finished
  :: phase == committing && branch[i] != finished && branch[i] != voted_rdonly -> branch[i] = unsure
#else
  :: phase == committing && branch[i] != finished -> branch[i] = unsure
#endif
  :: phase == aborting && branch[i] != finished -> branch[i] = unsure
  :: else
  fi
}

/* What the answer to a scan of this session means (14). */
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
  :: what == lists_busy -> again[i] = true       /* neither absent nor in doubt (15) */
  :: what == lists_none ->
       if
       :: phase == committing && branch[i] == unsure ->
#ifndef M_NOTA_IS_DONE
            if
            :: disk[i] == committed              /* the outcome row is the evidence (16) */
            :: else ->                           /* HEURRB, forced before the branch counts as done (17) */
                 assert(by_hand[i]);  /* no heuristic without a cause (16); unreached: at 0 no person acts */
                 heuristic[i] = true
            fi;
#endif
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
            :: !below_floor && record && in_record[i] ->
                 assert(false)                   /* a commit is answered once it is durable */
            :: !below_floor && !record ->
                 if
                 :: log == intact -> ask(i, rollback)              /* own: presumed abort (2, 4) */
#ifdef M_RESTORED_LOG_PRESUMES_ABORT
                 :: log == older_copy -> ask(i, rollback)
#endif
#ifdef M_UNKNOWN_EPOCH_PRESUMES_ABORT
                 :: log == unknown -> ask(i, rollback)
#endif
                 :: else -> reported[i] = true                     /* for a person to decide (2) */
                 fi
            :: else -> reported[i] = true        /* unreached: only what voted yes is prepared (14) */
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
       if
       :: branch[i] == sent && what == done -> branch[i] = finished
#ifdef M_NOTA_IS_DONE
       :: branch[i] == sent && what == nota -> branch[i] = finished
#else
       :: branch[i] == sent && what == nota ->
            branch[i] = unsure; again[i] = true  /* list first (16); unreached: at 0, as above */
#endif
       :: else
       fi
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
#ifdef M_RELEASE_IS_NOT_AWAITED
#define releases (phase == releasing || phase == deciding || phase == committing)
#else
#define releases (phase == releasing)            /* before the decision (11) */
#endif

inline next_of(i) {         /* what is to be said to a participant now */
  if
  :: phase == committing && branch[i] == voted_yes -> ask(i, commit); branch[i] = sent
  :: phase == aborting && (branch[i] == voted_yes || branch[i] == voted_rdonly) ->
       ask(i, rollback); branch[i] = sent
  :: releases && branch[i] == voted_rdonly -> ask(i, release)
  :: phase == ended && !covered[i] && !reported[i] -> ask(i, list)
  :: again[i] && phase != ended -> again[i] = false; ask(i, list)
  fi
}
#define has_next(i) ((phase == committing && branch[i] == voted_yes) || \
                     (phase == aborting && (branch[i] == voted_yes || branch[i] == voted_rdonly)) || \
                     (releases && branch[i] == voted_rdonly) || \
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
       :: else ->                                /* all only read: no record (5) */
            readers_held(); only_readers = true; tell(told_committed); phase = ended
       fi }
  :: atomic { writing -> is_durable() }
  :: atomic { writing && phase == deciding && store_full -> store_full = false; is_refused() }

  :: atomic { times_out && (phase == preparing || phase == releasing
#ifdef M_TIMEOUT_AFTER_PERSIST
              || phase == deciding
#endif
              ) -> times_out = false;
       branch[0] = (branch[0] == started -> unsure : branch[0]);
       branch[1] = (branch[1] == started -> unsure : branch[1]);
       abort_it() }
  :: atomic { (phase == committing || phase == aborting) && all_finished -> phase = ended }
#ifdef M_FLOOR_PASSES_WITHOUT_SCANS
  :: atomic { phase == ended && !below_floor ->
#else
  :: atomic { phase == ended && covered[0] && covered[1] && !below_floor ->
#endif
       below_floor = true; record = false }       /* the floor passes it (6) */
  od
}

/* ---- a participant ----------------------------------------------------------------------------- */

#define worked(i) (said_yes[i] || said_rdonly[i])

inline reader_ends(i) {     /* without Release */
  if
  :: here[i] == reader -> here[i] = none; locked[i] = false; reader_lost[i] = !worked(other(i))
  :: else
  fi
}

inline begin_branch(i) {
  if
  :: from[i]!no
  :: here[i] = reader; locked[i] = true; said_rdonly[i] = true;
#ifdef M_READER_RELEASES_AT_ITS_VOTE
     reader_ends(i);
#endif
     from[i]!rdonly
  :: here[i] = running; locked[i] = true;
#ifdef M_VOTE_BEFORE_DURABLE
     said_yes[i] = true; from[i]!yes
#endif
  fi
}

/* A forced write is out: it cannot be called back, and goes on when its session has ended. */
#define verb_runs(i) (here[i] == running || here[i] == committing_queued)

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
       if :: connected(i) && asked[i] == start -> from[i]!yes :: else fi
#endif
       }
  :: atomic { to[i]?commit ->
       if
       :: here[i] == prepared ->                 /* early release (13): its prepare is durable */
            locked[i] = false; seen[i] = true; here[i] = committing_queued
       :: else -> from[i]!nota
       fi }
  :: atomic { here[i] == committing_queued ->
       assert(said_yes[i] && (said_yes[other(i)] || said_rdonly[other(i)]));   /* commit only if all voted yes */
       assert(!undone[other(i)]);                                  /* one outcome */
       here[i] = none; disk[i] = committed;
       if :: connected(i) && asked[i] == commit -> from[i]!done :: else fi }
  :: atomic { to[i]?rollback ->
       if
       :: here[i] == prepared ->
            assert(!decided);                                      /* a durable decision never changes */
            assert(!seen[i]);                                      /* nothing seen is undone (13) */
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
  :: atomic { !verb_runs(i) && to[i]?[list] ->
#else                                            /* or a crash would bring back what was rolled back (6) */
  :: atomic { !verb_runs(i) && !rollback_queued[i] && to[i]?[list] ->
#endif
       to[i]?list;
       if
       :: odd_scans > 0 -> odd_scans--; from[i]!failed
       :: here[i] == prepared -> from[i]!lists_it
       :: here[i] != prepared -> from[i]!lists_none
       fi }
  :: atomic { verb_runs(i) && odd_scans > 0 && to[i]?[list] ->   /* `fence_ms` is over (15) */
       to[i]?list; odd_scans--;
#ifdef M_BUSY_IS_ABSENT
       from[i]!lists_none }
#else
       from[i]!lists_busy }
#endif
  /* A Start of a session that is gone is run, if no newer session has come; else never (15). */
  :: atomic { late[i] && !connected(i) && here[i] == none -> late[i] = false; here[i] = running; locked[i] = true }
#ifdef M_NO_FENCE
  :: atomic { late[i] && link[i] && here[i] == none && !rollback_queued[i] && disk[i] == none ->
       late[i] = false; here[i] = running; locked[i] = true }
#endif
  od
}

/* ---- what goes wrong, and is repaired ---------------------------------------------------------- */

inline cut(i) {             /* what was on its way is lost; a Start perhaps only delayed */
  dead[i] = true;
  if
  :: to[i]?[start] -> if :: late[i] = true :: skip fi; to[i]?_
  :: to[i]?[commit] || to[i]?[rollback] || to[i]?[release] || to[i]?[list] -> to[i]?_
  :: else
  fi;
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

inline rolled_back_by_hand(i) {
  here[i] = none; locked[i] = false; disk[i] = none; by_hand[i] = true
}

inline log_lost(what) { log = what; record = false; below_floor = false }

inline recover_branch(i) { branch[i] = (record && in_record[i] -> unsure : finished) }

active proctype world() {
end:
  do
  /* A session begins with a scan, which a running verb of the old one makes wait (14, 15). */
  :: atomic { !link[0] -> session_opens(0) }
  :: atomic { !link[1] -> session_opens(1) }
  /* The participant notices first: its unvoted branch ends (10) while the coordinator may decide. */
  :: atomic { connected(0) && breaks > 0 -> breaks--; cut(0) }
  :: atomic { connected(1) && breaks > 0 -> breaks--; cut(1) }
  :: atomic { dead[0] -> lost_session(0) }
  :: atomic { dead[1] -> lost_session(1) }
  :: atomic { crashes > 0 -> crashes--;
       if :: connected(0) -> cut(0) :: else fi; participant_dies(0) }
  :: atomic { crashes > 0 -> crashes--;
       if :: connected(1) -> cut(1) :: else fi; participant_dies(1) }
  :: atomic { coordinator_crash -> coordinator_crash = false;
       if :: connected(0) -> cut(0) :: else fi;
       if :: connected(1) -> cut(1) :: else fi;
       hang_up(0); hang_up(1);
       if                                        /* what was being written may be there, or not */
       :: writing -> record = true; decided = true
       :: skip
       fi;
       writing = false;
       if                                        /* which log does the next epoch open? (1, 2) */
       :: skip
#ifdef M_COMMIT_RECORD_IS_NOT_FORCED
       :: record = false
#endif
       :: log_lost(older_copy)                   /* --restored; the copy's last epoch is this one */
       :: decided -> log_lost(older_copy); record = true           /* it has the record */
       :: log_lost(unknown)                      /* the epoch began after the copy; or made anew, --rebuild */
       fi;
       recover_branch(0); recover_branch(1);
       phase = (record -> committing : ended);
       if
       :: record -> tell(told_committed)
       :: !record && log == intact && !below_floor -> tell(told_aborted)   /* presumed (8) */
       :: else
       fi }
  /* A person ends a prepared branch at the participant itself: a heuristic decision (16, 17).
   * At one of the two, which are alike. */
  :: atomic { person_acts && here[1] == prepared -> person_acts = false; rolled_back_by_hand(1) }
  od
}

/* ---- what must hold ---------------------------------------------------------------------------- */

#define locks_follow(i) ((here[i] == prepared || here[i] == running || here[i] == reader) == locked[i])

active proctype always() {
end:
  atomic { !locks_follow(0) || !locks_follow(1) ->
    assert(false) }                                                /* a lock with its branch, and only so (11) */
}

/* Nothing can happen any more. What a person has to decide after the log was lost is the exception, and what a
 * person did to a branch, if the coordinator has reported it (heuristic). */
#define for_a_person(i) (reported[i] && log != intact)
#define ended_well(i) (here[i] == none || for_a_person(i))
#define goes_with_commit(i) (disk[i] == committed || said_rdonly[i] || heuristic[i] || \
                             for_a_person(i) || (by_hand[i] && log != intact))
#define all_go_with_commit (goes_with_commit(0) && goes_with_commit(1))
#define none_committed (disk[0] != committed && disk[1] != committed)

active proctype at_the_end() {
  timeout ->
  assert(phase == ended && !writing);                              /* every transaction ends */
  assert(ended_well(0) && ended_well(1));                          /* nothing stays in doubt */
  assert(none_committed || all_go_with_commit);                    /* one outcome */
  assert(told != told_aborted || none_committed);                  /* told aborted, and so it was */
  assert(told != told_committed || only_readers || all_go_with_commit)   /* told committed, and so it was */
}
