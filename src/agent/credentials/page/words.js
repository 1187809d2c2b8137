// The words of names, labels and buttons by their meaning, in the languages of common pages. They
// are compared without case, accents and punctuation: see normalize.

const WORDS = {
  identifier: [
    'username', 'user name', 'userid', 'user id', 'user', 'uname', 'usr', 'login', 'login id',
    'login name', 'loginname', 'logon', 'account name', 'account id', 'member id', 'screen name',
    'customer number', 'identifier', 'sign in name',
    'benutzername', 'benutzer', 'nutzername', 'nutzer', 'anmeldename', 'benutzerkennung', 'kennung',
    'kundennummer', 'zugangsnummer',
    'identifiant', "nom d'utilisateur", 'utilisateur', 'nom de compte',
    'usuario', 'nombre de usuario', 'nome utente', 'utente', 'nome de usuário', 'usuário',
    'utilizador', 'nome de utilizador',
    'gebruikersnaam', 'gebruiker', 'inlognaam', 'nazwa użytkownika', 'użytkownik', 'uzytkownik',
    'ユーザー名', 'ユーザ名', 'ユーザーID', 'ユーザID', 'ログインID', 'ログイン名', '会員番号', '会員ID', 'アカウント名',
    '用户名', '用戶名', '使用者名稱', '账号', '帐号', '帳號', '账户', '登录名',
    'имя пользователя', 'логин', 'пользователь', 'kullanıcı adı', 'kullanici adi', 'kullanıcı',
    'اسم المستخدم', '아이디', '사용자 이름', '사용자명', 'användarnamn', 'brugernavn', 'brukernavn',
    'käyttäjätunnus', 'uživatelské jméno',
  ],
  email: [
    'email', 'e mail', 'mail', 'email address', 'e mail adresse', 'emailadresse', 'courriel',
    'adresse électronique', 'correo', 'correo electrónico', 'posta elettronica',
    'correio eletrónico', 'correio eletrônico', 'emailadres', 'e mailadres', 'adres e mail',
    'メール', 'メールアドレス', '邮箱', '郵箱', '电子邮件', '電子郵件', '邮件', 'почта', 'эл почта', 'e posta', 'eposta',
    'البريد الإلكتروني', '이메일', 'e post', 'sähköposti',
  ],
  phone: [
    'phone', 'phone number', 'mobile', 'mobile number', 'telephone', 'tel', 'cell', 'msisdn',
    'telefon', 'telefonnummer', 'handynummer', 'mobilnummer', 'téléphone', 'teléfono', 'móvil',
    'celular', 'telefono', 'cellulare', 'telefone', 'telemóvel', 'telefoon', 'telefoonnummer',
    'numer telefonu', '電話番号', '電話', '携帯', '手机', '手機', '电话', '電話號碼', 'телефон', 'هاتف', '전화',
  ],
  password: [
    'password', 'pass word', 'passwd', 'pwd', 'pass', 'passphrase', 'passwort', 'kennwort',
    'mot de passe', 'motdepasse', 'contraseña', 'clave', "parola d'ordine", 'senha',
    'palavra passe', 'wachtwoord', 'hasło', 'haslo', 'パスワード', '密码', '密碼', '口令', 'пароль',
    'şifre', 'parola', 'كلمة المرور', 'كلمة السر', '비밀번호', '암호', 'lösenord', 'adgangskode',
    'salasana', 'heslo',
  ],
  code: [
    'one time code', 'one time password', 'one time passcode', 'onetimecode', 'otp', 'totp', '2fa',
    'two factor', 'mfa', 'verification code', 'verificationcode', 'authentication code',
    'authenticator', 'bestätigungscode', 'einmalcode', 'einmalpasswort', 'verifizierungscode',
    'code de vérification', 'code à usage unique', 'código de verificación', 'código de un solo uso',
    'código de verificação', 'codice di verifica', 'codice monouso', 'verificatiecode',
    'kod weryfikacyjny', 'kod jednorazowy', 'verifieringskod', 'bekræftelseskode', 'engangskode',
    'bekreftelseskode', 'vahvistuskoodi', 'ověřovací kód',
    '認証コード', '確認コード', 'ワンタイム', '認証番号', '验证码', '驗證碼', '动态码', '校验码', 'код подтверждения',
    'doğrulama kodu', 'رمز التحقق', '인증번호', '인증 코드',
  ],
  // Codes of which the word does not show what they are for.
  bareCode: [
    'code', 'passcode', 'security code', 'sicherheitscode', 'code de sécurité', 'código', 'codice',
    'beveiligingscode', 'kod', 'kode', 'koodi', 'kód', '安全码', 'код',
  ],
  // A field with one of these words is none of the fields above.
  otherField: [
    'promo', 'promotion', 'coupon', 'voucher', 'discount', 'gift', 'rabatt', 'gutschein',
    'gutscheincode', 'cupón', 'sconto', 'zip', 'postal', 'postcode', 'post code', 'zip code',
    'postleitzahl', 'plz', 'pocztowy', 'fiscale', '邮编', '邮政', '郵便', 'country', 'country code',
    'area code', 'region', 'referral', 'referrer', 'invite', 'invitation', 'einladung', 'captcha',
    'recaptcha', '图形', '圖形', '图片', 'cvv', 'cvc', 'csc', 'cvn', 'card', 'kreditkarte',
    'kartennummer', 'prüfnummer', 'kartenprüfnummer', 'cryptogramme', 'tarjeta', '卡号', 'iban', 'bic',
    'swift', 'sort code',
    'first name', 'firstname', 'last name', 'lastname', 'given name', 'family name', 'surname',
    'full name', 'fullname', 'vorname', 'nachname', 'prénom', 'apellido', 'cognome', 'sobrenome',
    'voornaam', 'achternaam', 'imię', 'nazwisko', '氏名', '姓名', 'company', 'organization',
    'organisation', 'tenant', 'workspace', 'team', 'subdomain', 'firma', 'société', 'empresa',
    'azienda', 'bedrijf', '会社', '公司', 'street', 'address line', 'city', 'town', 'birthday',
    'date of birth', 'birth', 'age', 'comment', 'message', 'nachricht', 'subject', 'betreff',
    'website', 'url', 'homepage', 'amount', 'quantity', 'price', 'budget', 'question', 'answer',
    'title', 'gender', 'job', 'note', 'notes', 'reason', 'friend', 'ssn', 'social security', 'wifi',
    'wi fi', 'wlan', 'ssid', 'network key',
  ],
  // Texts about a password, beside fields for something else.
  passwordHelp: [
    'hint', 'passwordhint', 'reminder', 'forgot', 'forgotten', 'lost', 'reset', 'recover', 'recovery',
    'merkhilfe', 'hinweis', 'vergessen', 'zurücksetzen', 'indice', 'oublié', 'réinitialiser', 'pista',
    'olvidó', 'olvidaste', 'olvidado', 'olvidada', 'restablecer', 'recuperar', 'suggerimento',
    'dimenticato', 'dimenticata', 'reimposta', 'dica', 'esqueci', 'esqueceu', 'redefinir', 'vergeten',
    'podpowiedź', 'zapomniałeś', 'przypomnij', 'resetuj', 'ヒント', '忘れ', 'リセット', '提示', '忘记', '忘記', '重置',
    'подсказка', 'забыли', 'сбросить', 'ipucu', 'unuttum', 'sıfırla', 'تلميح', 'نسيت', '힌트', '잊으', '재설정', 'glömt',
    'glemt', 'unohtu', 'zapomenut',
  ],
  // Passwords that are set or repeated, not entered.
  newPassword: [
    'new', 'confirm', 'confirmation', 'repeat', 'retype', 're type', 'reenter', 're enter', 'again',
    'verify', 'choose', 'create', 'password2', 'neu', 'neues', 'wiederholen', 'wiederholung',
    'bestätigen', 'bestätigung', 'nouveau', 'confirmer', 'confirmez', 'confirmation', 'répéter',
    'nueva', 'nuevo', 'confirmar', 'repetir', 'repita', 'repite', 'nuova', 'conferma', 'ripeti',
    'nova', 'nieuw', 'nieuwe', 'bevestig', 'bevestigen', 'herhaal', 'nowe', 'powtórz', 'potwierdź',
    '新しい', '再入力', '確認', 'もう一度', '新密码', '新密碼', '确认', '重复', '重複', '再次', 'новый', 'подтвердите', 'повторите',
    'yeni', 'tekrar', 'onayla', 'تأكيد', 'الجديدة', '새', '재입력',
  ],
  search: [
    'search', 'query', 'keyword', 'keywords', 'find', 'suche', 'suchen', 'suchbegriff', 'recherche',
    'rechercher', 'buscar', 'búsqueda', 'cerca', 'ricerca', 'pesquisar', 'pesquisa', 'busca',
    'zoek', 'zoeken', 'szukaj', 'wyszukaj', '検索', '搜索', '搜尋', '查找', 'поиск', 'بحث', '검색', 'sök',
  ],
  newsletter: [
    'newsletter', 'subscribe', 'subscription', 'mailing list', 'abonnieren', 'abonner', 'abonnez',
    'infolettre', 'suscribirse', 'suscríbete', 'suscripción', 'boletín', 'assinar', 'assine',
    'nieuwsbrief', 'abonneren', 'biuletyn', 'subskrybuj', 'メルマガ', 'ニュースレター', '購読', '订阅', '訂閱',
    'рассылка', 'подписаться', 'bülten', 'abone', 'النشرة', '뉴스레터', '구독', 'waitlist', 'notify me',
  ],
  registration: [
    'sign up', 'signup', 'register', 'registration', 'create account', 'create an account',
    'create your account', 'create a account', 'join', 'join now', 'enroll', 'new account',
    'registrieren', 'registrierung', 'konto erstellen', 'konto anlegen', 'inscription', 'inscrire',
    'inscrivez', 'créer un compte', 'créer mon compte', 'registrarse', 'regístrate', 'registro',
    'crear cuenta', 'crear una cuenta', 'registrati', 'registrazione', 'crea account',
    'crea un account', 'iscriviti', 'cadastre', 'cadastrar', 'cadastro', 'criar conta',
    'criar uma conta', 'inscrever', 'registreren', 'account aanmaken', 'inschrijven',
    'zarejestruj', 'rejestracja', 'załóż konto', 'utwórz konto', '新規登録', '会員登録', 'アカウント作成',
    'アカウントを作成', '登録する', '注册', '註冊', '创建账户', '创建帐户', 'регистрация', 'зарегистрироваться',
    'создать аккаунт', 'kayıt ol', 'üye ol', 'hesap oluştur', 'إنشاء حساب', '회원가입', '가입하기',
    'reset password', 'change password', 'set password', 'passwort ändern',
  ],
  login: [
    'log in', 'login', 'sign in', 'signin', 'log on', 'logon', 'anmelden', 'anmeldung', 'einloggen',
    'connexion', 'se connecter', 'connectez', 'iniciar sesión', 'inicia sesión', 'acceder',
    'entrar', 'ingresar', 'accedi', 'accesso', 'iniciar sessão', 'fazer login', 'acessar',
    'inloggen', 'aanmelden', 'zaloguj', 'logowanie', 'ログイン', 'サインイン', '登录', '登錄', '登入', 'войти',
    'вход', 'giriş', 'oturum aç', 'تسجيل الدخول', '로그인', 'logga in', 'log ind', 'kirjaudu',
    'přihlásit', 'authenticate', 'authentication', 'sso', 'two step', 'two factor',
  ],
  // Leads to the next step.
  next: [
    'continue', 'next', 'weiter', 'fortfahren', 'suivant', 'continuer', 'siguiente', 'continuar',
    'avanti', 'continua', 'próximo', 'seguinte', 'volgende', 'doorgaan', 'dalej', 'kontynuuj',
    '次へ', '続行', '続ける', '下一步', '继续', '繼續', 'далее', 'продолжить', 'ileri', 'devam', 'التالي', '다음',
  ],
  send: [
    'verify', 'submit', 'confirm', 'enter', 'go', 'ok', 'send', 'bestätigen', 'absenden', 'senden',
    'prüfen', 'valider', 'vérifier', 'envoyer', 'verificar', 'enviar', 'verifica', 'conferma',
    'invia', 'verifiëren', 'bevestigen', 'zweryfikuj', 'potwierdź', '確認', '送信', '验证', '驗證', '确认',
    'подтвердить', 'doğrula', 'تحقق', '확인',
  ],
  honeypot: [
    'honeypot', 'honey pot', 'hp', 'bot field', 'botfield', 'bot', 'leave blank', 'leave this',
    'leave empty', 'keep empty', 'keep this', 'do not fill', 'do not enter', "don't fill",
    'dont fill', 'if you are human', 'are you human', 'nicht ausfüllen', 'leer lassen',
    'ne pas remplir', 'laisser vide', 'no rellenar', 'dejar vacío', 'non compilare',
    'lasciare vuoto', 'não preencher', 'deixe em branco', 'niet invullen', 'nie wypełniaj',
    '入力しないで', '空欄', '请勿填写', '不要填写', 'не заполнять', 'boş bırakın', 'antispam', 'anti spam', 'spam',
  ],
};

// Returns the words of a text in lower case, without accents and punctuation, with a space around
// each: `userName2` and `User-Name 2` are the same.
function normalize(text) {
  return toWords(text.slice(0, MAX_TEXT));
}

// Normalizes a text of any length.
function toWords(text) {
  const split = text
    .replace(/(\p{Ll}|\p{N})(\p{Lu})/gu, '$1 $2')
    .replace(/(\p{Script=Latin})(\p{N})/gu, '$1 $2');
  const plain = split.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
  return ` ${plain.replace(/[^\p{L}\p{N}]+/gu, ' ').trim()} `;
}

// The longest text of an attribute or a label that is read.
const MAX_TEXT = 200;
// Latin words of this length are also found within other words, as `username` in `txtusername`.
const MIN_LENGTH_WITHIN = 6;

const toTerms = (words) =>
  Object.fromEntries(
    Object.entries(words).map(([meaning, list]) => [
      meaning,
      list.map((word) => {
        const term = normalize(word).trim();
        const within = term.length >= MIN_LENGTH_WITHIN || !/\p{Script=Latin}/u.test(term);
        return within ? term : ` ${term} `;
      }),
    ]),
  );

const TERMS = toTerms(WORDS);

// Whether a normalized text has a word of this meaning.
function means(text, meaning) {
  return TERMS[meaning].some((term) => text.includes(term));
}

const meansAny = (text, meanings) => meanings.some((meaning) => means(text, meaning));
